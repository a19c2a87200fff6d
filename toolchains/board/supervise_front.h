/* Holds the service's port, so that it stays open while a server starts, is replaced or has ended. What
 * passes the connections on is a process of its own, with the rights of the server: nothing that
 * clients do or storage takes keeps it and supervise from their work. */
#pragma once

#include <sys/mman.h>

#include "supervise_child.h"
#include "supervise_pass.h"

static struct {
    int files[MOST_LISTENERS], count;
    struct settings settings; /* those that they were made for */
    pid_t passer;
} front;

static void close_front(void)
{
    if (front.passer > 0) {
        kill(front.passer, SIGKILL);
        waitpid(front.passer, NULL, 0);
    }
    for (int i = 0; i < front.count; i++)
        close(front.files[i]);
    front.passer = front.count = 0;
}

static bool open_listener(const struct settings *settings, const struct sockaddr_storage *address)
{
    int file = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (file < 0)
        return false;
    setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (address->ss_family == AF_INET6)
        setsockopt(file, IPPROTO_IPV6, IPV6_V6ONLY, &(int){settings->listener_count > 1}, sizeof(int));
    if (bind(file, (const struct sockaddr *)address, size_of(address)) != 0 || listen(file, SOMAXCONN) != 0) {
        int reason = errno;
        close(file);
        errno = reason;
        return false;
    }
    front.files[front.count++] = file;
    return true;
}

static bool is_same_front(const struct settings *settings)
{
    const struct settings *now = &front.settings;
    return front.count > 0 && front.count == settings->listener_count && now->uid == settings->uid
           && now->gid == settings->gid && now->with_tls == settings->with_tls
           && memcmp(now->listeners, settings->listeners, sizeof now->listeners) == 0;
}

static bool start_passer(const struct settings *settings)
{
    pid_t parent = getpid(), started = fork();
    if (started < 0)
        return false;
    if (started > 0) {
        front.passer = started;
        return true;
    }
    for (int file = 0; file < 1024; file++) {
        bool is_ours = false;
        for (int i = 0; i < front.count; i++)
            is_ours = is_ours || front.files[i] == file;
        if (!is_ours && file != STDERR_FILENO)
            close(file);
    }
    if (!become_user(settings))
        _exit(CANNOT_RUN);
    close(STDERR_FILENO);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(CANNOT_RUN);
    pass_for_ever(front.files, front.count, settings->with_tls);
}

/* Opens the port where the version wants that and it is not open yet; false with errno. */
static bool open_front(const struct settings *settings)
{
    if (front.passer > 0 && waitpid(front.passer, NULL, WNOHANG) == front.passer)
        front.passer = 0;
    if (!is_same_front(settings))
        close_front();
    if (settings->listener_count == 0 || front.passer > 0)
        return true;
    if (passing == NULL)
        passing = mmap(NULL, sizeof *passing, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (passing == MAP_FAILED) {
        passing = NULL;
        return false;
    }
    passing->busy[BEHIND] = passing->busy[BESIDE] = 0;
    front.settings = *settings;
    for (int i = front.count; i < settings->listener_count; i++)
        if (!open_listener(settings, &settings->listeners[i])) {
            int reason = errno;
            close_front();
            errno = reason;
            return false;
        }
    return start_passer(settings);
}
