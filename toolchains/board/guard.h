/* A process that ends a program when this process can no longer do it. */
#pragma once

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* A program that this process cannot end any more, because it was killed itself, ends all the
 * same, with all that it has started. */
static pid_t start_guard(pid_t program, int alive_end)
{
    pid_t guard = fork();
    if (guard != 0)
        return guard;
    setpgid(0, 0);
    for (int file = 0; file < 1024; file++)
        if (file != alive_end)
            close(file);
    char word;
    ssize_t count;
    do
        count = read(alive_end, &word, 1);
    while (count < 0 && errno == EINTR);
    if (count == 0)
        kill(-program, SIGKILL);
    _exit(0);
}

static void dismiss_guard(pid_t guard, int alive_end)
{
    bool knows = write(alive_end, "", 1) == 1 || errno == EPIPE;
    if (knows && guard > 0)
        waitpid(guard, NULL, 0);
}
