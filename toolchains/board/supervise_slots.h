/* Has a server write what its slots hold to files before it is ended, and read them once it has
 * started, so that prompts are not processed again after a restart. Only a version of the same key
 * reads them: of another model, they would be wrong. The files lie in the folder that the service's
 * user alone can enter, and each is read once. */
#pragma once

#include "supervise_front.h"

enum { SAVE_MS = 8000, RESTORE_S = 300 };

static const char SLOT_FILE[] = "slot-";

static struct {
    pid_t worker; /* 0: none */
    bool is_saving, is_done; /* is_done: since its start, they were saved */
    int64_t until_ms; /* that is waited for; NEVER: nothing */
} slots = {.until_ms = INT64_MAX};

static void remove_slots(void)
{
    int place = open(PRIVATE_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = place < 0 ? NULL : fdopendir(place);
    if (folder == NULL)
        return;
    for (const struct dirent *file; (file = readdir(folder)) != NULL;)
        if (strncmp(file->d_name, SLOT_FILE, sizeof SLOT_FILE - 1) == 0)
            unlinkat(dirfd(folder), file->d_name, 0);
    closedir(folder);
}

/* Returns whether the server answers 200. */
static bool post_slot(int slot, const char *action, const char *name, const char *key)
{
    char text[1024], body[128];
    struct timeval limit = {.tv_sec = RESTORE_S};
    int length = snprintf(body, sizeof body, "{\"filename\":\"%s\"}", name);
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server < 0)
        return false;
    setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    length = snprintf(text, sizeof text,
                      "POST /slots/%d?action=%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
                      "Content-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
                      slot, action, key, length, body);
    bool is_sent = length < (int)sizeof text
                   && connect(server, (const struct sockaddr *)&SOCKETS[BEHIND], sizeof SOCKETS[BEHIND]) == 0
                   && send(server, text, (size_t)length, MSG_NOSIGNAL) == length;
    static const char expected[] = "HTTP/1.1 200";
    ssize_t count = is_sent ? recv(server, text, sizeof expected - 1, MSG_WAITALL) : 0;
    close(server);
    return count == (ssize_t)sizeof expected - 1 && memcmp(text, expected, sizeof expected - 1) == 0;
}

static void move_slots(const struct settings *settings, bool saves)
{
    char key[SMALL_FILE_BYTES], name[64], path[96];
    if (!read_small_file("keys", key))
        return;
    key[strcspn(key, "\n")] = '\0';
    if (saves)
        remove_slots();
    for (int slot = 0; slot < settings->slots; slot++) {
        snprintf(name, sizeof name, "%s%012" PRIx64 "-%d", SLOT_FILE, (uint64_t)settings->slots_key, slot);
        snprintf(path, sizeof path, "%s/%s", PRIVATE_FOLDER, name);
        if (!saves && access(path, R_OK) != 0)
            continue;
        bool is_done = post_slot(slot, saves ? "save" : "restore", name, key);
        if (!saves || !is_done)
            unlink(path);
    }
}

static void start_moving(const struct settings *settings, bool saves)
{
    pid_t parent = getpid(), started = fork();
    if (started > 0) {
        slots.worker = started;
        slots.is_saving = saves;
    }
    if (started != 0)
        return;
    for (int file = STDERR_FILENO + 1; file < 1024; file++)
        close(file);
    if (!become_user(settings))
        _exit(CANNOT_RUN);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent)
        move_slots(settings, saves);
    _exit(0);
}

static void look_at_slots(void)
{
    if (slots.worker > 0 && waitpid(slots.worker, NULL, WNOHANG) == slots.worker)
        slots.worker = 0;
}

static void break_off_slots(void)
{
    if (slots.worker > 0) {
        kill(slots.worker, SIGKILL);
        waitpid(slots.worker, NULL, 0);
    }
    slots.worker = 0;
}

static void restore_slots(const struct settings *settings)
{
    break_off_slots();
    slots.is_saving = slots.is_done = false;
    slots.until_ms = NEVER;
    if (settings->slots > 0)
        start_moving(settings, false);
}

/* Whether the server that is to end has to be waited for. */
static bool saves_slots(const struct settings *settings, int64_t now)
{
    if (settings->slots == 0 || slots.is_done)
        return false;
    look_at_slots();
    if (slots.until_ms == NEVER)
        slots.until_ms = now + SAVE_MS;
    if (slots.worker == 0 && !slots.is_saving)
        start_moving(settings, true);
    if (slots.worker > 0 && now < slots.until_ms)
        return true;
    bool is_in_part = slots.worker > 0 && slots.is_saving;
    break_off_slots();
    if (is_in_part) /* what was not read yet stays for the next start */
        remove_slots();
    slots.is_saving = false;
    slots.is_done = true;
    return false;
}
