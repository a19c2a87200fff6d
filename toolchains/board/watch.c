/* Starts a program, passes on what it writes to its standard output, and notes when, and what the
 * program's memory, faults and CPU time are at that moment.
 *
 *   watch [-p FILE] [-i FILE] [-q FILE [-t SECONDS]] [-e NAME=VALUE]... PROGRAM [ARGUMENT]...
 *
 * The notes go to the file that ARMLOAD_TRACE names, in the format of armload's traces; -p gets the
 * program's process id, and -i is its standard input. With -q, it is started once for each question
 * of a file, which is its standard input, the file question.txt of its working folder, and stands
 * for {prompt} in its arguments; -t limits each. What it writes becomes a line of JSON then.
 *
 * The exit status is the program's, 128 + signal where one ended it, and 127
 * or 126 where it could not be started, as in a shell. Signals go on to the program and to all that
 * it has started; none of them outlives this process.
 *
 * Where its output can no longer be passed on (storage is full, the reader has gone), the program
 * goes on and is watched to its end: its times and its memory are still those of the whole run, and
 * its own files are still written. What it writes from then on is dropped; the exit status is 1
 * where the program's was 0. */
#define _GNU_SOURCE
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#include "watch_questions.h"

enum {
    BUFFER_BYTES = 1 << 16,
    MOST_AT_ONCE = 1 << 12, /* more than the pipe holds */
    LOOK_EVERY_NS = 100 * 1000 * 1000,
};

static const int PASSED_ON[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM};

static bool cannot_pass_on, was_told_to_end;
static int64_t looked_ns;

static void look(int64_t now_ns)
{
    looked_ns = now_ns;
    put_look(now_ns);
}

static void pass_on(const char *data, size_t length)
{
    while (length > 0 && !cannot_pass_on) {
        ssize_t count = write(STDOUT_FILENO, data, length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0) {
            complain("cannot be passed on", "what the program writes");
            cannot_pass_on = true;
            return;
        }
        data += count;
        length -= (size_t)count;
    }
}

/* Takes what lies in the pipe, but not for ever; says whether more may come. */
static bool take_writes(int pipe_end)
{
    static char buffer[BUFFER_BYTES];
    for (int taken = 0; taken < MOST_AT_ONCE; taken++) {
        ssize_t count = read(pipe_end, buffer, sizeof buffer);
        if (count <= 0)
            return count < 0 && (errno == EAGAIN || errno == EINTR);
        int64_t now_ns = armload_clock_ns(CLOCK_MONOTONIC);
        put_write(now_ns, (size_t)count);
        if (question.file != NULL)
            keep_answer(now_ns, buffer, (size_t)count);
        else
            pass_on(buffer, (size_t)count);
    }
    return true;
}

static bool has_ended(void)
{
    siginfo_t about = {0};
    return waitid(P_PID, (id_t)program.id, &about, WEXITED | WNOHANG | WNOWAIT) == 0
           && about.si_pid == program.id;
}

static void pass_on_signals(int signals)
{
    struct signalfd_siginfo about;
    while (read(signals, &about, sizeof about) == (ssize_t)sizeof about)
        if (about.ssi_signo != SIGCHLD) {
            was_told_to_end = true;
            kill(-program.id, (int)about.ssi_signo);
        }
}

static void follow(int out, int signals)
{
    bool more = true;
    do {
        int64_t wait_ns = looked_ns + LOOK_EVERY_NS - armload_clock_ns(CLOCK_MONOTONIC);
        struct pollfd files[] = {{.fd = signals, .events = POLLIN},
                                 {.fd = more ? out : -1, .events = POLLIN}};
        poll(files, 2, wait_ns > 0 ? (int)(wait_ns / 1000000) + 1 : 0);
        if (files[1].revents != 0)
            more = take_writes(out);
        if (files[0].revents != 0)
            pass_on_signals(signals);
        int64_t now_ns = armload_clock_ns(CLOCK_MONOTONIC);
        if (now_ns - looked_ns >= LOOK_EVERY_NS)
            look(now_ns);
        check_deadline(now_ns);
    } while (!has_ended());
    /* What it has left running must not disturb the next run. Its number is kept meanwhile. */
    kill(-program.id, SIGKILL);
    if (more)
        take_writes(out);
}

/* Signals wait for the program's sake; returns where they can be read. */
static int take_signals(sigset_t *former)
{
    sigset_t handled;
    sigemptyset(&handled);
    sigaddset(&handled, SIGCHLD);
    for (size_t i = 0; i < sizeof PASSED_ON / sizeof *PASSED_ON; i++)
        sigaddset(&handled, PASSED_ON[i]);
    sigprocmask(SIG_BLOCK, &handled, former);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK);
}

static bool read_words(int argc, char **argv, struct order *order)
{
    int option;
    while ((option = getopt(argc, argv, "+p:i:q:t:e:")) != -1) {
        if (option == 'p')
            order->id_file = optarg;
        else if (option == 'i')
            order->input_file = optarg;
        else if (option == 'q')
            order->question_file = optarg;
        else if (option == 't' && (question.limit_ns = strtoll(optarg, NULL, 10) * 1000000000) > 0)
            continue;
        else if (option == 'e' && order->setting_count < MOST_SETTINGS && strchr(optarg, '=') != NULL)
            order->settings[order->setting_count++] = optarg;
        else
            return false;
    }
    order->words = argv + optind;
    return optind < argc;
}

static void put_id(const char *path)
{
    FILE *file = path == NULL ? NULL : fopen(path, "we");
    if (path != NULL && (file == NULL || fprintf(file, "%d\n", (int)program.id) < 0))
        complain("cannot be written", path);
    if (file != NULL)
        fclose(file);
}

/* Runs the program to its end; says whether it could be started. */
static bool run(const struct order *order, int signals, const sigset_t *former, int *status)
{
    static bool has_header;
    int64_t start_ns = armload_clock_ns(CLOCK_MONOTONIC);
    struct pipes pipes;
    bool whole_writes;
    *status = CANNOT_RUN;
    if (!make_pipes(&pipes, &whole_writes)) {
        complain("no pipe can be made", order->words[0]);
        return false;
    }
    if (!has_header)
        put_header(start_ns, whole_writes);
    has_header = true;
    struct started started = start(order, &pipes, former);
    if (started.program < 0) {
        complain("no process can be started", order->words[0]);
        return false;
    }
    if (started.reason != 0) {
        *status = could_not_start(order->words[0], started.reason);
        return false;
    }

    open_program(started.program);
    put_id(order->id_file);
    trace.last = counters_at(armload_clock_ns(CLOCK_MONOTONIC));
    trace.last.time_ns = start_ns; /* the first write counts from the beginning */
    trace.last.cpu_ns = 0;
    answer.start_ns = start_ns;
    question.deadline_ns = question.limit_ns > 0 ? start_ns + question.limit_ns : 0;
    look(armload_clock_ns(CLOCK_MONOTONIC));
    follow(pipes.out[0], signals);

    int ended = 0;
    struct rusage used = {0};
    wait4(program.id, &ended, 0, &used);
    dismiss_guard(started.guard, pipes.alive[1]);
    *status = WIFSIGNALED(ended) ? 128 + WTERMSIG(ended) : WEXITSTATUS(ended);
    put_end(*status, &used);
    close(pipes.out[0]);
    close(pipes.alive[1]);
    close_program();
    return true;
}

/* Asks one question after the other, until a signal comes; the exit status is 0 where all were asked. */
static int ask(struct order *order, int signals, const sigset_t *former)
{
    char **words = order->words;
    while (!was_told_to_end && next_question()) {
        int status = CANNOT_RUN;
        answer.length = 0;
        answer.first_ns = answer.last_ns = 0;
        answer.cut_by = NULL;
        order->input = put_question();
        order->words = asking_words(words);
        if (order->input < 0 || order->words == NULL) {
            complain("cannot be asked", question.id);
            return CANNOT_RUN;
        }
        bool was_started = run(order, signals, former, &status);
        close(order->input);
        forget_words(order->words);
        if (!was_started)
            return status;
        if (was_told_to_end)
            return status == 0 ? 128 + SIGTERM : status;
        if (!put_answer(status))
            return 1;
    }
    if (question.is_damaged) {
        fprintf(stderr, "watch: %s: not a file of questions\n", order->question_file);
        return CANNOT_RUN;
    }
    return was_told_to_end ? 128 + SIGTERM : 0;
}

int main(int argc, char **argv)
{
    struct order order = {0};
    if (!read_words(argc, argv, &order)) {
        fputs("usage: watch [-p FILE] [-i FILE] [-q FILE [-t SECONDS]] [-e NAME=VALUE]... PROGRAM "
              "[ARGUMENT]...\n", stderr);
        return 2;
    }
    order.input = STDIN_FILENO;
    if (order.input_file != NULL && (order.input = open(order.input_file, O_RDONLY | O_CLOEXEC)) < 0) {
        complain("cannot be read", order.input_file);
        return CANNOT_RUN;
    }
    if (order.question_file != NULL && (question.file = fopen(order.question_file, "re")) == NULL) {
        complain("cannot be read", order.question_file);
        return CANNOT_RUN;
    }
    program.page_bytes = sysconf(_SC_PAGESIZE);
    open_trace();
    armload_open_sensors();
    sigset_t former;
    int signals = take_signals(&former);
    if (question.file != NULL)
        return ask(&order, signals, &former);
    int status;
    run(&order, signals, &former, &status);
    return status == 0 && cannot_pass_on ? 1 : status;
}
