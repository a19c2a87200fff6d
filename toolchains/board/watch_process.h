/* What the kernel tells of a running program: its memory, faults, reads, CPU time and switches. */
#pragma once

#include <dirent.h>
#include <sys/types.h>

#include "watch_base.h"

struct counters {
    int64_t time_ns, major_faults, read_bytes, cpu_ns, switches;
};

static struct {
    pid_t id;
    int statm, stat, io, status;
    int64_t page_bytes;
    int64_t rss_bytes, max_vms_bytes;
    int64_t counted_ns, count_interval_ns;
} program;

static int open_of_program(const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)program.id, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static void open_program(pid_t id)
{
    program.id = id;
    program.statm = open_of_program("statm");
    program.stat = open_of_program("stat");
    program.io = open_of_program("io");
    program.status = open_of_program("status");
}

/* The next one begins with no memory and no counts of this one. */
static void close_program(void)
{
    close(program.statm);
    close(program.stat);
    close(program.io);
    close(program.status);
    program.rss_bytes = program.max_vms_bytes = program.counted_ns = 0;
}

static int64_t major_faults(void)
{
    char text[1024];
    long long faults;
    if (armload_read_text(program.stat, text, sizeof text) <= 0)
        return UNKNOWN;
    const char *rest = strrchr(text, ')'); /* the program's name may hold anything */
    if (rest == NULL || sscanf(rest, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %lld", &faults) != 1)
        return UNKNOWN;
    return faults;
}

static int64_t read_bytes(void)
{
    char text[512];
    return armload_read_text(program.io, text, sizeof text) > 0 ? number_after(text, "\nread_bytes:") : UNKNOWN;
}

/* The kernel counts them for each thread alone. */
static int64_t switches_of_all_threads(void)
{
    char path[64], text[4096];
    int64_t sum = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)program.id);
    DIR *tasks = opendir(path);
    if (tasks == NULL)
        return UNKNOWN;
    for (const struct dirent *task; (task = readdir(tasks)) != NULL;) {
        if (task->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%.20s/status", task->d_name);
        int file = openat(dirfd(tasks), path, O_RDONLY | O_CLOEXEC);
        ssize_t count = armload_read_text(file, text, sizeof text);
        if (file >= 0)
            close(file);
        int64_t switches = count > 0 ? number_after(text, "\nnonvoluntary_ctxt_switches:") : UNKNOWN;
        if (switches != UNKNOWN)
            sum += switches;
    }
    closedir(tasks);
    return sum;
}

static int64_t count_switches(int64_t now_ns)
{
    if (program.counted_ns != 0 && now_ns - program.counted_ns < program.count_interval_ns)
        return UNKNOWN;
    int64_t switches = switches_of_all_threads();
    program.counted_ns = now_ns;
    program.count_interval_ns = rest_after(now_ns);
    return switches;
}

static struct counters counters_at(int64_t now_ns)
{
    struct counters now = {.time_ns = now_ns};
    now.cpu_ns = armload_clock_ns((clockid_t)((~(unsigned)program.id << 3) | 2)); /* clock_getcpuclockid's */
    now.major_faults = major_faults();
    now.read_bytes = read_bytes();
    now.switches = count_switches(now_ns);
    return now;
}

static void look_at_rss(void)
{
    char text[128];
    long long size, resident;
    if (armload_read_text(program.statm, text, sizeof text) <= 0)
        return;
    if (sscanf(text, "%lld %lld", &size, &resident) == 2 && resident > 0)
        program.rss_bytes = resident * program.page_bytes;
}

static bool look_at_peak(void)
{
    char text[4096];
    if (armload_read_text(program.status, text, sizeof text) <= 0)
        return false;
    int64_t peak_kib = number_after(text, "\nVmPeak:");
    int64_t rss_kib = number_after(text, "\nVmRSS:");
    if (peak_kib == UNKNOWN || rss_kib == UNKNOWN)
        return false;
    if (peak_kib * 1024 > program.max_vms_bytes)
        program.max_vms_bytes = peak_kib * 1024;
    program.rss_bytes = rss_kib * 1024;
    return true;
}
