/* The lines "key value" of a version's file "supervisor". */
#pragma once

#include <arpa/inet.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "supervise_base.h"

_Static_assert(offsetof(struct sockaddr_in, sin_port) == offsetof(struct sockaddr_in6, sin6_port), "one port");

enum { PROBLEM_BYTES = 256, MOST_LISTENERS = 8 };

/* Where a server listens whose port is held for it; relative to the folder, as paths of sockets are short. */
#define PRIVATE_FOLDER "private"
#define PRIVATE_SOCKET PRIVATE_FOLDER "/server.sock"

struct settings {
    int64_t port, uid, gid, oom_score_adj, nice, memory_limit_bytes, log_bytes, load_s;
    int64_t failures, pause_s, settled_s, silence_s, stop_s, drain_s, slots, slots_key;
    struct sockaddr_storage address, listeners[MOST_LISTENERS];
    int listener_count;
    bool only_connects, with_tls;
};

static const int64_t UNSET = INT64_MIN;

#define KEY(name, least, most, otherwise) {#name, offsetof(struct settings, name), least, most, otherwise}

static const struct key {
    const char *name;
    size_t place;
    int64_t least, most, otherwise;
} KEYS[] = {
    KEY(port, 1, 65535, INT64_MIN),
    KEY(uid, 0, UINT32_MAX - 1, INT64_MIN),
    KEY(gid, 0, UINT32_MAX - 1, INT64_MIN),
    KEY(oom_score_adj, -1000, 1000, 0),
    KEY(nice, -20, 19, 0),
    KEY(memory_limit_bytes, 1, INT64_MAX, INT64_MAX),
    KEY(log_bytes, 1, INT64_C(1) << 40, 1 << 20),
    KEY(load_s, 0, 1000000, 0),
    KEY(failures, 1, 1000, 8),
    KEY(pause_s, 0, 60, 1),
    KEY(settled_s, 0, 1000000, 600),
    KEY(silence_s, 1, 1000000, 60),
    KEY(stop_s, 0, 1000, 10),
    KEY(drain_s, 0, 1000000, 300),
    KEY(slots, 0, 256, 0),
    KEY(slots_key, 0, INT64_MAX, 0),
};

enum { KEY_COUNT = sizeof KEYS / sizeof *KEYS };

static int64_t *value_of(struct settings *settings, const struct key *key)
{
    return (int64_t *)(void *)((char *)settings + key->place);
}

static bool set_number(struct settings *settings, const struct key *key, const char *text)
{
    char *end;
    errno = 0;
    int64_t number = strtoll(text, &end, 10);
    if (strspn(text, "-0123456789") != strlen(text) || end == text || *end != '\0' || errno != 0
        || number < key->least || number > key->most)
        return false;
    *value_of(settings, key) = number;
    return true;
}

static bool set_address(struct sockaddr_storage *address, const char *text)
{
    struct sockaddr_in *four = (struct sockaddr_in *)address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
    bool is_six = strchr(text, ':') != NULL;
    address->ss_family = is_six ? AF_INET6 : AF_INET;
    return inet_pton(address->ss_family, text, is_six ? (void *)&six->sin6_addr : (void *)&four->sin_addr) == 1;
}

static socklen_t size_of(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_UNIX   ? sizeof(struct sockaddr_un)
           : address->ss_family == AF_INET ? sizeof(struct sockaddr_in)
                                           : sizeof(struct sockaddr_in6);
}

static bool set_listeners(struct settings *settings, const char *text)
{
    for (;;) {
        char address[INET6_ADDRSTRLEN];
        size_t length = strcspn(text, ",");
        if (length >= sizeof address || settings->listener_count == MOST_LISTENERS)
            return false;
        memcpy(address, text, length);
        address[length] = '\0';
        if (!set_address(&settings->listeners[settings->listener_count++], address))
            return false;
        if (text[length] == '\0')
            return true;
        text += length + 1;
    }
}

static bool set_health(struct settings *settings, const char *text)
{
    settings->only_connects = strcmp(text, "connect") == 0;
    return settings->only_connects || strcmp(text, "yes") == 0;
}

static bool set_tls(struct settings *settings, const char *text, const char **problem)
{
    settings->with_tls = strcmp(text, "yes") == 0;
#ifndef ARMLOAD_TLS
    if (settings->with_tls)
        *problem = "is not possible with this program, which was built without it";
    return strcmp(text, "no") == 0;
#else
    (void)problem;
    return settings->with_tls || strcmp(text, "no") == 0;
#endif
}

static const char *const WORDS[] = {"address", "health", "listen", "tls"};

/* Each key at most once: bits of seen are those of the numbers, then of the others. */
static bool set(struct settings *settings, const char *name, const char *text, unsigned *seen, const char **problem)
{
    int index = 0, count = KEY_COUNT + (int)(sizeof WORDS / sizeof *WORDS);
    while (index < count && strcmp(name, index < KEY_COUNT ? KEYS[index].name : WORDS[index - KEY_COUNT]) != 0)
        index++;
    *problem = index == count ? "is not a known key" : "is given twice";
    if (index == count || (*seen & 1u << index) != 0)
        return false;
    *seen |= 1u << index;
    *problem = "has an invalid value";
    return index < KEY_COUNT        ? set_number(settings, &KEYS[index], text)
           : index == KEY_COUNT     ? set_address(&settings->address, text)
           : index == KEY_COUNT + 1 ? set_health(settings, text)
           : index == KEY_COUNT + 2 ? set_listeners(settings, text)
                                    : set_tls(settings, text, problem);
}

__attribute__((format(printf, 2, 3))) static bool refuse(char *problem, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(problem, PROBLEM_BYTES, format, values);
    va_end(values);
    return false;
}

static bool parse_settings(char *text, struct settings *settings, char *problem)
{
    unsigned seen = 0;
    *settings = (struct settings){.only_connects = false};
    set_address(&settings->address, "127.0.0.1");
    for (int i = 0; i < KEY_COUNT; i++)
        *value_of(settings, &KEYS[i]) = KEYS[i].otherwise;
    int number = 1;
    for (char *line = text, *next; *line != '\0'; line = next, number++) {
        size_t length = strcspn(line, "\n");
        next = line + length + (line[length] == '\n');
        line[length] = '\0';
        char *value = strchr(line, ' ');
        if (value == NULL || strspn(line, "abcdefghijklmnopqrstuvwxyz_") != (size_t)(value - line))
            return refuse(problem, "line %d of its supervisor file must be a key, a space and a value", number);
        *value++ = '\0';
        const char *why;
        if (!set(settings, line, value, &seen, &why))
            return refuse(problem, "line %d of its supervisor file: %.40s %s", number, line, why);
    }
    if (settings->port == UNSET)
        return refuse(problem, "its supervisor file has no port");
    if ((settings->uid == UNSET) != (settings->gid == UNSET))
        return refuse(problem, "its supervisor file must have both uid and gid, or neither");
    if (settings->with_tls && settings->listener_count == 0)
        return refuse(problem, "its supervisor file has tls without listen");
    /* sin6_port is at the same place. */
    ((struct sockaddr_in *)&settings->address)->sin_port = htons((uint16_t)settings->port);
    for (int i = 0; i < settings->listener_count; i++)
        ((struct sockaddr_in *)&settings->listeners[i])->sin_port = htons((uint16_t)settings->port);
    return true;
}

/* Reads versions/<id>. The problem continues a sentence that names the id. */
static bool read_version(const char *id, struct settings *settings, char *problem)
{
    char path[ID_BYTES + 32], text[SMALL_FILE_BYTES];
    snprintf(path, sizeof path, "versions/%s/start", id);
    if (access(path, R_OK) != 0)
        return refuse(problem, "its start script cannot be read: %s", strerror(errno));
    snprintf(path, sizeof path, "versions/%s/supervisor", id);
    if (!read_small_file(path, text))
        return refuse(problem, "its supervisor file cannot be read: %s", strerror(errno));
    return parse_settings(text, settings, problem);
}
