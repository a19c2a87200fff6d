/* Starting a program so that neither it nor anything that it starts outlives this process. */
#pragma once

#include <sys/prctl.h>

#include "guard.h"
#include "watch_base.h"

enum {
    PIPE_BYTES = 1 << 20,
    MOST_SETTINGS = 16,
    CANNOT_RUN = 126,
    NOT_FOUND = 127,
};

struct order {
    char **words;
    char *settings[MOST_SETTINGS];
    int setting_count;
    const char *id_file; /* gets its process id; NULL for none */
    const char *input_file; /* NULL for the standard input of this process */
    const char *question_file; /* NULL where it is started once */
    int input;
};

struct pipes {
    int out[2];    /* the program's standard output */
    int failed[2]; /* why it could not be started; its end where it could */
    int alive[2];  /* ends with this process */
};

struct started {
    pid_t program, guard;
    int reason; /* for which it could not be started; 0 where it could */
};

/* A pipe of packets keeps each write apart, however late this process is. */
static bool make_pipes(struct pipes *made, bool *whole_writes)
{
    *whole_writes = pipe2(made->out, O_DIRECT | O_CLOEXEC) == 0;
    if ((!*whole_writes && pipe2(made->out, O_CLOEXEC) != 0) || pipe2(made->failed, O_CLOEXEC) != 0
        || pipe2(made->alive, O_CLOEXEC) != 0)
        return false;
    fcntl(made->out[0], F_SETPIPE_SZ, PIPE_BYTES);
    return true;
}

static void be_the_program(const struct order *order, const struct pipes *pipes,
                           const sigset_t *mask, pid_t parent)
{
    signal(SIGPIPE, SIG_DFL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(128 + SIGKILL);
    unsetenv("ARMLOAD_TRACE"); /* it is this trace */
    for (int i = 0; i < order->setting_count; i++)
        putenv(order->settings[i]);
    dup2(pipes->out[1], STDOUT_FILENO);
    if (order->input != STDIN_FILENO)
        dup2(order->input, STDIN_FILENO);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(order->words[0], order->words);
    int reason = errno;
    if (write(pipes->failed[1], &reason, sizeof reason) != sizeof reason)
        _exit(CANNOT_RUN);
    _exit(NOT_FOUND);
}

/* Without a process there is no program, and errno says why. */
static struct started start(const struct order *order, const struct pipes *pipes,
                            const sigset_t *mask)
{
    pid_t parent = getpid();
    struct started started = {.program = fork()};
    if (started.program < 0)
        return started;
    if (started.program == 0)
        be_the_program(order, pipes, mask, parent);
    setpgid(started.program, started.program);
    close(pipes->out[1]);
    close(pipes->failed[1]);
    started.guard = start_guard(started.program, pipes->alive[0]);
    close(pipes->alive[0]);
    fcntl(pipes->out[0], F_SETFL, fcntl(pipes->out[0], F_GETFL) | O_NONBLOCK);
    if (read(pipes->failed[0], &started.reason, sizeof started.reason)
        == (ssize_t)sizeof started.reason) {
        waitpid(started.program, NULL, 0);
        dismiss_guard(started.guard, pipes->alive[1]);
    }
    return started;
}

static int could_not_start(const char *name, int reason)
{
    errno = reason;
    bool is_there = strchr(name, '/') != NULL && access(name, F_OK) == 0;
    errno = reason;
    complain(reason == ENOENT && is_there ? "its loader cannot be started" : "cannot be started", name);
    return reason == ENOENT ? NOT_FOUND : CANNOT_RUN;
}
