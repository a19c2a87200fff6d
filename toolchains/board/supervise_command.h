/* "supervise WORD FOLDER": what a person, an init script or a later command wants of the supervisor
 * of a folder, which is found by what its process is called. */
#pragma once

#include <dirent.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>

#include "supervise_base.h"

enum { NOT_RUNNING = 3, LOOK_MS = 100, TERM_MS = 20000, KILL_MS = 25000 };

static const char SUPERVISE[] = "supervise"; /* with the NUL behind it */

/* Whoever may write into the folder may also start a program of this name. */
static bool is_called_so(const char *id, const char *folder)
{
    char path[64], words[SMALL_FILE_BYTES];
    snprintf(path, sizeof path, "/proc/%.20s/cmdline", id);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t count = file < 0 ? -1 : read(file, words, sizeof words);
    if (file >= 0)
        close(file);
    size_t last = strlen(folder) + 1, least = sizeof SUPERVISE + last;
    if (count < (ssize_t)least)
        return false;
    const char *end = words + count;
    return memcmp(end - last, folder, last) == 0 && memcmp(end - least, SUPERVISE, sizeof SUPERVISE) == 0;
}

static bool is_this_program(const char *id)
{
    char path[64];
    struct stat its, own;
    snprintf(path, sizeof path, "/proc/%.20s/exe", id);
    return stat(path, &its) == 0 && stat("/proc/self/exe", &own) == 0 && its.st_dev == own.st_dev
           && its.st_ino == own.st_ino;
}

/* What it starts is called so, too, until it becomes another program. */
static bool is_started_by_one(const char *id, const char *folder)
{
    char path[64], text[SMALL_FILE_BYTES], parent[24];
    snprintf(path, sizeof path, "/proc/%.20s/status", id);
    const char *line = read_small_file(path, text) ? strstr(text, "\nPPid:") : NULL;
    snprintf(parent, sizeof parent, "%ld", line == NULL ? 0 : strtol(line + strlen("\nPPid:"), NULL, 10));
    return is_called_so(parent, folder);
}

static bool takes_hangup(const char *id, const char *folder)
{
    return is_this_program(id) && !is_started_by_one(id, folder);
}

/* Returns how many supervisors the folder has; sends each a signal, or none: 0.
 * SIGHUP ends a program that does not know it. */
static int signal_supervisors(const char *folder, int number)
{
    int found = 0;
    DIR *processes = opendir("/proc");
    if (processes == NULL)
        return 0;
    for (const struct dirent *process; (process = readdir(processes)) != NULL;) {
        pid_t id = (pid_t)strtol(process->d_name, NULL, 10);
        if (id <= 0 || !is_called_so(process->d_name, folder) || (number == SIGHUP && !takes_hangup(process->d_name, folder)))
            continue;
        found++;
        if (number != 0 && kill(id, number) != 0 && errno != ESRCH)
            fprintf(stderr, "supervise: cannot signal process %d: %s\n", (int)id, strerror(errno));
    }
    closedir(processes);
    return found;
}

static int stop_supervisors(const char *folder)
{
    bool is_killed = false;
    int64_t began_ms = now_ms();
    signal_supervisors(folder, SIGTERM);
    while (signal_supervisors(folder, 0) > 0) {
        int64_t waited_ms = now_ms() - began_ms;
        if (waited_ms > KILL_MS)
            return 1;
        if (waited_ms > TERM_MS && !is_killed) {
            signal_supervisors(folder, SIGKILL);
            is_killed = true;
        }
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    }
    return 0;
}

/* It belongs to no terminal and no connection, and its process is called so when this returns. */
static int start_supervisor(char *program, char *folder)
{
    if (signal_supervisors(folder, 0) > 0)
        return 0;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t files;
    pid_t id;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    posix_spawn_file_actions_init(&files);
    for (int file = STDIN_FILENO; file <= STDERR_FILENO; file++)
        posix_spawn_file_actions_addopen(&files, file, "/dev/null", O_RDWR, 0);
    int reason = posix_spawn(&id, "/proc/self/exe", &files, &attributes, (char *[]){program, folder, NULL}, environ);
    if (reason != 0)
        fprintf(stderr, "supervise: cannot start: %s\n", strerror(reason));
    return reason == 0 ? 0 : 1;
}

/* Returns the exit status. */
static int carry_out(const char *word, char *program, char *folder)
{
    if (strcmp(word, "start") == 0)
        return start_supervisor(program, folder);
    if (strcmp(word, "stop") == 0)
        return stop_supervisors(folder);
    if (strcmp(word, "restart") == 0)
        return stop_supervisors(folder) == 0 ? start_supervisor(program, folder) : 1;
    if (strcmp(word, "reload") == 0)
        return signal_supervisors(folder, SIGHUP) > 0 ? 0 : NOT_RUNNING;
    if (strcmp(word, "status") == 0) {
        bool is_running = signal_supervisors(folder, 0) > 0;
        puts(is_running ? "running" : "stopped");
        return is_running ? 0 : NOT_RUNNING;
    }
    fputs("usage: supervise [start|stop|restart|reload|status] FOLDER\n", stderr);
    return 2;
}
