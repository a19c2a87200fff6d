/* Asks the service whether it is well, without ever waiting for it. */
#pragma once

#include "supervise_settings.h"

enum { MOST_ANSWER_BYTES = 1 << 16, QUESTIONS_IN_SILENCE = 4 };

/* ANSWERED: by a server that is not ready. */
enum answer { PENDING, SILENT, ANSWERED, HEALTHY };

static struct {
    int socket;
    bool is_sent;
    int64_t limit_ms;
    char head[sizeof "HTTP/1.1 200"];
    size_t length;
    ssize_t bytes;
} question = {.socket = -1};

static enum answer end_question(enum answer answer)
{
    if (question.socket >= 0)
        close(question.socket);
    question.socket = -1;
    return answer;
}

static enum answer judge(void)
{
    if (question.length < sizeof question.head - 1 || memcmp(question.head, "HTTP/1.", 7) != 0)
        return end_question(SILENT);
    return end_question(memcmp(question.head + 8, " 200", 4) == 0 ? HEALTHY : ANSWERED);
}

/* An address of the network comes late after a power cut, when the router starts, too. */
static bool has(struct sockaddr_storage address)
{
    ((struct sockaddr_in *)&address)->sin_port = 0; /* where sin6_port is */
    int file = socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool lacks = file >= 0 && bind(file, (struct sockaddr *)&address, size_of(&address)) != 0 && errno == EADDRNOTAVAIL;
    if (file >= 0)
        close(file);
    return !lacks;
}

static bool has_address(const struct settings *settings)
{
    bool has_all = has(settings->address);
    for (int i = 0; i < settings->listener_count; i++)
        has_all = has_all && has(settings->listeners[i]);
    return has_all;
}

static enum answer ask(const struct settings *settings, int64_t now)
{
    bool is_behind = settings->listener_count > 0;
    static const struct sockaddr_un behind = {.sun_family = AF_UNIX, .sun_path = PRIVATE_SOCKET};
    const void *address = is_behind ? (const void *)&behind : &settings->address;
    socklen_t size = is_behind ? sizeof behind : size_of(&settings->address);
    question.socket = socket(is_behind ? AF_UNIX : settings->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    question.is_sent = false;
    question.length = 0;
    question.bytes = 0;
    question.limit_ms = now + settings->silence_s * 1000 / QUESTIONS_IN_SILENCE;
    if (question.socket < 0
        || (connect(question.socket, address, size) != 0 && errno != EINPROGRESS))
        return end_question(SILENT);
    return PENDING;
}

static enum answer send_question(const struct settings *settings)
{
    static const char words[] = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    struct sockaddr_storage peer;
    socklen_t size = sizeof peer, error_size = sizeof(int);
    int error = 0;
    if (getpeername(question.socket, (struct sockaddr *)&peer, &size) != 0) {
        getsockopt(question.socket, SOL_SOCKET, SO_ERROR, &error, &error_size);
        return error == 0 ? PENDING : end_question(SILENT);
    }
    if (settings->only_connects)
        return end_question(HEALTHY);
    question.is_sent = true;
    return send(question.socket, words, sizeof words - 1, MSG_NOSIGNAL) == (ssize_t)sizeof words - 1
               ? PENDING
               : end_question(SILENT);
}

/* Reads to the end, though the first line suffices: a server need not see its client break off. */
static enum answer hear(const struct settings *settings, int64_t now)
{
    enum answer answer = question.is_sent ? PENDING : send_question(settings);
    while (answer == PENDING && question.is_sent) {
        char text[1024];
        ssize_t count = recv(question.socket, text, sizeof text, 0);
        if (count < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        size_t room = sizeof question.head - 1 - question.length;
        size_t part = count < 0 ? 0 : (size_t)count < room ? (size_t)count : room;
        memcpy(question.head + question.length, text, part);
        question.length += part;
        question.bytes += count;
        if (count <= 0 || question.bytes > MOST_ANSWER_BYTES)
            return judge();
    }
    return answer == PENDING && now >= question.limit_ms ? judge() : answer;
}
