/* The service's process group: how it is started, what it takes of the memory, how it ended. */
#pragma once

#include <dirent.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "guard.h"
#include "supervise_log.h"
#include "supervise_settings.h"

enum {
    CANNOT_RUN = 126,
    PIPE_BYTES = 1 << 20,
    CHUNK_BYTES = 1 << 16,
    MOST_CHUNKS = 64, /* in a row: a service that writes without end is looked after all the same */
};

/* None has id 0. */
static struct {
    pid_t id, guard;
    int out, alive;
} child = {.out = -1, .alive = -1};

/* Standard error is the log by now. */
static bool become_user(const struct settings *settings)
{
    if (settings->uid == UNSET)
        return true;
    uid_t uid = (uid_t)settings->uid;
    gid_t gid = (gid_t)settings->gid;
    if (geteuid() != 0 && uid == geteuid() && gid == getegid())
        return true;
    if (setgroups(0, NULL) == 0 && setgid(gid) == 0 && setuid(uid) == 0)
        return true;
    dprintf(STDERR_FILENO, "supervise: cannot switch to user %u and group %u: %s\n", uid, gid, strerror(errno));
    return false;
}

static void yield_to_others(const struct settings *settings)
{
    char text[32];
    int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    int length = snprintf(text, sizeof text, "%d", (int)settings->oom_score_adj);
    if (settings->oom_score_adj != 0 && (file < 0 || write(file, text, (size_t)length) != length))
        dprintf(STDERR_FILENO, "supervise: cannot set oom_score_adj: %s\n", strerror(errno));
    if (settings->nice != 0 && setpriority(PRIO_PROCESS, 0, (int)settings->nice) != 0)
        dprintf(STDERR_FILENO, "supervise: cannot set the priority: %s\n", strerror(errno));
}

static _Noreturn void be_the_child(const char *id, const struct settings *settings, int out, const sigset_t *mask, pid_t parent)
{
    char path[ID_BYTES + 32];
    snprintf(path, sizeof path, "versions/%s/start", id);
    setpgid(0, 0);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    yield_to_others(settings);
    if (!become_user(settings))
        _exit(CANNOT_RUN);
    unlink(PRIVATE_SOCKET);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of user would undo it */
    if (getppid() != parent)
        _exit(CANNOT_RUN);
    unsetenv("NOTIFY_SOCKET"); /* that is between init and us */
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execl("/bin/sh", "sh", path, (char *)NULL);
    execl("/system/bin/sh", "sh", path, (char *)NULL); /* Android's and OpenHarmony's */
    dprintf(STDERR_FILENO, "supervise: cannot start a shell: %s\n", strerror(errno));
    _exit(CANNOT_RUN);
}

/* Its user makes sockets in it. One that was there before is not given away: that user may have made
 * something else of the name. */
static void make_private_folder(const struct settings *settings)
{
    if (settings->listener_count > 0 && mkdir(PRIVATE_FOLDER, 0700) == 0 && settings->uid != UNSET
        && lchown(PRIVATE_FOLDER, (uid_t)settings->uid, (gid_t)settings->gid) != 0)
        tell("cannot give %s to the service's user: %s", PRIVATE_FOLDER, strerror(errno));
}

static bool start_child(const char *id, const struct settings *settings, const sigset_t *mask)
{
    int out[2], alive[2];
    make_private_folder(settings);
    if (pipe2(out, O_CLOEXEC) != 0)
        return false;
    pid_t parent = getpid(), started = -1;
    bool has_alive = pipe2(alive, O_CLOEXEC) == 0;
    if (has_alive && (started = fork()) == 0)
        be_the_child(id, settings, out[1], mask, parent);
    close(out[1]);
    if (started < 0) {
        close(out[0]);
        if (has_alive) {
            close(alive[0]);
            close(alive[1]);
        }
        return false;
    }
    setpgid(started, started);
    fcntl(out[0], F_SETPIPE_SZ, PIPE_BYTES);
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    child.id = started;
    child.out = out[0];
    child.alive = alive[1];
    child.guard = start_guard(started, alive[0]);
    close(alive[0]);
    return true;
}

static void signal_child(int number)
{
    if (child.id > 0)
        kill(-child.id, number);
}

static void take_output(void)
{
    static char chunk[CHUNK_BYTES];
    for (int taken = 0; child.out >= 0 && taken < MOST_CHUNKS; taken++) {
        ssize_t count = read(child.out, chunk, sizeof chunk);
        if (count > 0)
            put_log(chunk, (size_t)count);
        if (count < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (count <= 0) {
            close(child.out);
            child.out = -1;
        }
    }
}

static bool has_ended(void)
{
    siginfo_t about = {0};
    return child.id > 0 && waitid(P_PID, (id_t)child.id, &about, WEXITED | WNOHANG | WNOWAIT) == 0
           && about.si_pid == child.id;
}

/* Ends what it has left running, while its number is still its own; returns how it ended. */
static int bury_child(void)
{
    int status = 0;
    kill(-child.id, SIGKILL);
    take_output();
    waitpid(child.id, &status, 0);
    dismiss_guard(child.guard, child.alive);
    close(child.alive);
    if (child.out >= 0)
        close(child.out);
    child.id = 0;
    child.out = child.alive = -1;
    return status;
}

/* What a process holds that no file could be read again for. Kernels before 4.5 have no RssAnon. */
static int64_t held_bytes(const char *id)
{
    char path[64], text[SMALL_FILE_BYTES];
    long long size, resident, of_files;
    snprintf(path, sizeof path, "/proc/%.20s/statm", id);
    if (!read_small_file(path, text) || sscanf(text, "%lld %lld %lld", &size, &resident, &of_files) != 3)
        return 0;
    int64_t bytes = (int64_t)(resident - of_files) * sysconf(_SC_PAGESIZE);
    snprintf(path, sizeof path, "/proc/%.20s/status", id);
    const char *swapped = read_small_file(path, text) ? strstr(text, "\nVmSwap:") : NULL;
    return bytes + (swapped == NULL ? 0 : strtoll(swapped + strlen("\nVmSwap:"), NULL, 10) * 1024);
}

static int64_t group_bytes(void)
{
    int64_t sum = 0;
    DIR *processes = child.id > 0 ? opendir("/proc") : NULL;
    if (processes == NULL)
        return 0;
    for (const struct dirent *process; (process = readdir(processes)) != NULL;) {
        pid_t id = (pid_t)strtol(process->d_name, NULL, 10);
        if (id > 0 && getpgid(id) == child.id)
            sum += held_bytes(process->d_name);
    }
    closedir(processes);
    return sum;
}
