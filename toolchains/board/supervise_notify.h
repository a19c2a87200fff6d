/* What systemd is told, in the datagrams of sd_notify(3). Without it, nobody is told. */
#pragma once

#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "supervise_base.h"

static bool notify(const char *text)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = path == NULL ? 0 : strlen(path);
    if (length < 2 || length >= sizeof address.sun_path || (path[0] != '/' && path[0] != '@'))
        return false;
    memcpy(address.sun_path, path, length);
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    int file = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (file < 0)
        return false;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    ssize_t count = sendto(file, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT, (struct sockaddr *)&address, size);
    close(file);
    return count >= 0;
}

/* How often systemd wants a sign of life, twice in its period; NEVER where it wants none. */
static int64_t read_watchdog_ms(void)
{
    const char *us = getenv("WATCHDOG_USEC"), *id = getenv("WATCHDOG_PID");
    bool is_ours = id == NULL || strtoll(id, NULL, 10) == getpid();
    int64_t period_ms = us == NULL || !is_ours ? 0 : strtoll(us, NULL, 10) / 1000;
    return period_ms >= 2 ? period_ms / 2 : NEVER;
}
