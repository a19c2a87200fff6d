/* Starts a program, passes on what it writes to its standard output, and notes when, and what the
 * program's memory, faults and CPU time are at that moment.
 *
 *   watch [-p FILE] [-e NAME=VALUE]... PROGRAM [ARGUMENT]...
 *
 * The notes go to the file that ARMLOAD_TRACE names, in the format of armload's traces; -p gets the
 * program's process id. The exit status is the program's, 128 + signal where one ended it, and 127
 * or 126 where it could not be started, as in a shell. Signals go on to the program and to all that
 * it has started; none of them outlives this process. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    TRACE_FORMAT = 1,
    MAX_CORES = 128,
    MAX_ZONES = 64,
    LINE_BYTES = 4096,
    BUFFER_BYTES = 1 << 16,
    PIPE_BYTES = 1 << 20,
    MOST_AT_ONCE = 1 << 12, /* more than the pipe holds */
    MOST_STEPS = 200000, /* a program that writes without end must not fill the storage with notes */
    BLOCK_BYTES = 512,   /* of ru_inblock, whatever the disk's block is */
    LOOK_EVERY_NS = 100 * 1000 * 1000,
    MEMORY_CHANGED_BYTES = 1 << 20,
    SHARE = 400, /* what is slow to read may take one part in so many of the time */
    CANNOT_RUN = 126,
    NOT_FOUND = 127,
};

#define UNKNOWN INT64_MIN

static const int PASSED_ON[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM};

struct counters {
    int64_t time_ns, major_faults, read_bytes, cpu_ns, switches;
};

static struct {
    int file;
    int64_t start_ns, steps, left_out;
    int64_t page_bytes;

    pid_t program;
    int statm, stat, io, status;
    struct counters last;
    int64_t rss_bytes, noted_rss_bytes, max_vms_bytes;
    int64_t looked_ns, counted_ns, count_interval_ns;

    int core_count, cores[MAX_CORES];
    int zone_count, zones[MAX_ZONES];
    int64_t sensed_ns, sensor_interval_ns;
    long khz[MAX_CORES];
    long millicelsius; /* of the hottest zone */

    bool cannot_pass_on;
} watch = {.file = -1};

#define NO_TEMPERATURE (-1000000L)

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    if (clock_gettime(clock, &now) != 0)
        return UNKNOWN;
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void complain(const char *what, const char *name)
{
    fprintf(stderr, "watch: %s: %s: %s\n", name, what, strerror(errno));
}

static ssize_t read_text(int file, char *text, size_t size)
{
    ssize_t count = file < 0 ? -1 : pread(file, text, size - 1, 0);
    text[count > 0 ? count : 0] = '\0';
    return count;
}

static bool read_number(int file, long *number)
{
    char text[64], *end;
    if (read_text(file, text, sizeof text) <= 0)
        return false;
    *number = strtol(text, &end, 10);
    return end != text;
}

/* The number behind a name such as "VmPeak:". */
static int64_t number_after(const char *text, const char *name)
{
    const char *found = strstr(text, name);
    return found == NULL ? UNKNOWN : strtoll(found + strlen(name), NULL, 10);
}

static int open_of_program(const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)watch.program, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static int64_t major_faults(void)
{
    char text[1024];
    long long faults;
    if (read_text(watch.stat, text, sizeof text) <= 0)
        return UNKNOWN;
    const char *rest = strrchr(text, ')'); /* the program's name may hold anything */
    if (rest == NULL || sscanf(rest, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %lld", &faults) != 1)
        return UNKNOWN;
    return faults;
}

static int64_t read_bytes(void)
{
    char text[512];
    return read_text(watch.io, text, sizeof text) > 0 ? number_after(text, "\nread_bytes:") : UNKNOWN;
}

static void look_at_rss(void)
{
    char text[128];
    long long size, resident;
    if (read_text(watch.statm, text, sizeof text) <= 0)
        return;
    if (sscanf(text, "%lld %lld", &size, &resident) == 2 && resident > 0)
        watch.rss_bytes = resident * watch.page_bytes;
}

/* The kernel counts them for each thread alone. */
static int64_t switches_of_all_threads(void)
{
    char path[64], text[4096];
    int64_t sum = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)watch.program);
    DIR *tasks = opendir(path);
    if (tasks == NULL)
        return UNKNOWN;
    for (const struct dirent *task; (task = readdir(tasks)) != NULL;) {
        if (task->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%.20s/status", task->d_name);
        int file = openat(dirfd(tasks), path, O_RDONLY | O_CLOEXEC);
        ssize_t count = read_text(file, text, sizeof text);
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
    if (watch.counted_ns != 0 && now_ns - watch.counted_ns < watch.count_interval_ns)
        return UNKNOWN;
    int64_t switches = switches_of_all_threads();
    watch.counted_ns = now_ns;
    watch.count_interval_ns = (clock_ns(CLOCK_MONOTONIC) - now_ns) * SHARE;
    return switches;
}

static void open_sensors(void)
{
    char path[128];
    long cores = sysconf(_SC_NPROCESSORS_CONF);
    for (long core = 0; core < cores && watch.core_count < MAX_CORES; core++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%ld/cpufreq/scaling_cur_freq", core);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0)
            watch.cores[watch.core_count++] = file;
    }
    DIR *folder = opendir("/sys/class/thermal");
    if (folder == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (strncmp(entry->d_name, "thermal_zone", 12) != 0 || watch.zone_count == MAX_ZONES)
            continue;
        snprintf(path, sizeof path, "/sys/class/thermal/%.32s/temp", entry->d_name);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0)
            watch.zones[watch.zone_count++] = file;
    }
    closedir(folder);
}

/* Some sensors ask a microcontroller; between two readings the last one is repeated. */
static void sense(int64_t now_ns)
{
    if (watch.sensed_ns != 0 && now_ns - watch.sensed_ns < watch.sensor_interval_ns)
        return;
    for (int core = 0; core < watch.core_count; core++)
        if (!read_number(watch.cores[core], &watch.khz[core]))
            watch.khz[core] = 0; /* switched off */
    watch.millicelsius = NO_TEMPERATURE;
    for (int zone = 0; zone < watch.zone_count; zone++) {
        long value;
        if (read_number(watch.zones[zone], &value) && value > watch.millicelsius)
            watch.millicelsius = value;
    }
    watch.sensed_ns = now_ns;
    int64_t interval_ns = (clock_ns(CLOCK_MONOTONIC) - now_ns) * SHARE;
    watch.sensor_interval_ns = interval_ns > LOOK_EVERY_NS ? interval_ns : LOOK_EVERY_NS;
}

__attribute__((format(printf, 3, 4))) static size_t append(char *line, size_t length,
                                                           const char *format, ...)
{
    va_list values;
    va_start(values, format);
    int added = vsnprintf(line + length, LINE_BYTES - length, format, values);
    va_end(values);
    return length + (size_t)added;
}

static size_t append_count(char *line, size_t length, const char *name, int64_t now, int64_t before)
{
    if (now == UNKNOWN || before == UNKNOWN || now < before) /* a thread that ended takes its count along */
        return append(line, length, ",\"%s\":null", name);
    return append(line, length, ",\"%s\":%" PRId64, name, now - before);
}

/* One write per line: a program that is killed leaves whole lines. */
static void put_line(const char *line, size_t length)
{
    if (watch.file >= 0 && write(watch.file, line, length) != (ssize_t)length) {
        complain("cannot be written on", "the trace");
        close(watch.file);
        watch.file = -1;
    }
}

static void open_trace(void)
{
    const char *path = getenv("ARMLOAD_TRACE");
    if (path == NULL || path[0] == '\0')
        return;
    watch.file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    if (watch.file < 0)
        complain("cannot be opened", path);
}

static void put_header(bool whole_writes)
{
    char line[LINE_BYTES];
    size_t length = append(line, 0,
        "{\"format\":%d,\"clock\":\"CLOCK_MONOTONIC\",\"source\":\"watch\",\"page_bytes\":%" PRId64
        ",\"whole_writes\":%s,\"start_ns\":%" PRId64 "}\n",
        TRACE_FORMAT, watch.page_bytes, whole_writes ? "true" : "false", watch.start_ns);
    put_line(line, length);
}

static void put_write(int64_t now_ns, size_t bytes)
{
    struct counters now = {.time_ns = now_ns};
    if (watch.steps == MOST_STEPS) {
        watch.left_out++;
        return;
    }
    clockid_t clock = (clockid_t)((~(unsigned)watch.program << 3) | 2); /* clock_getcpuclockid's */
    now.cpu_ns = clock_ns(clock);
    now.major_faults = major_faults();
    now.read_bytes = read_bytes();
    now.switches = count_switches(now_ns);
    look_at_rss();
    sense(now_ns);
    /* The last words of a program may be read when it has ended already. */
    if (now.cpu_ns == UNKNOWN)
        now.cpu_ns = watch.last.cpu_ns;
    char line[LINE_BYTES];
    size_t length = append(line, 0,
        "{\"step\":%" PRId64 ",\"phase\":\"write\",\"bytes\":%zu,\"start_ns\":%" PRId64
        ",\"end_ns\":%" PRId64,
        watch.steps++, bytes, watch.last.time_ns, now.time_ns);
    length = append_count(line, length, "major_faults", now.major_faults, watch.last.major_faults);
    length = append_count(line, length, "read_bytes", now.read_bytes, watch.last.read_bytes);
    length = append(line, length, ",\"rss_bytes\":%" PRId64, watch.rss_bytes);
    length = append_count(line, length, "cpu_ns", now.cpu_ns, watch.last.cpu_ns);
    length = append_count(line, length, "involuntary_switches", now.switches, watch.last.switches);
    length = append(line, length, ",\"cpu_khz\":[");
    for (int core = 0; core < watch.core_count; core++)
        length = append(line, length, core == 0 ? "%ld" : ",%ld", watch.khz[core]);
    if (watch.zone_count > 0 && watch.millicelsius != NO_TEMPERATURE)
        length = append(line, length, "],\"celsius\":%.1f}\n", (double)watch.millicelsius / 1000);
    else
        length = append(line, length, "],\"celsius\":null}\n");
    put_line(line, length);
    watch.last = now;
}

/* Between two writes: memory grows while a model is loaded. */
static void look_at_memory(int64_t now_ns)
{
    char text[4096];
    watch.looked_ns = now_ns;
    if (read_text(watch.status, text, sizeof text) <= 0)
        return;
    int64_t peak_kib = number_after(text, "\nVmPeak:");
    int64_t rss_kib = number_after(text, "\nVmRSS:");
    if (peak_kib == UNKNOWN || rss_kib == UNKNOWN)
        return;
    if (peak_kib * 1024 > watch.max_vms_bytes)
        watch.max_vms_bytes = peak_kib * 1024;
    watch.rss_bytes = rss_kib * 1024;
    if (llabs((long long)(watch.rss_bytes - watch.noted_rss_bytes)) < MEMORY_CHANGED_BYTES)
        return;
    watch.noted_rss_bytes = watch.rss_bytes;
    char line[LINE_BYTES];
    size_t length = append(line, 0, "{\"look_ns\":%" PRId64 ",\"rss_bytes\":%" PRId64 "}\n", now_ns,
                           watch.rss_bytes);
    put_line(line, length);
}

static void put_end(int status, const struct rusage *used)
{
    char line[LINE_BYTES];
    int64_t cpu_ns = ((int64_t)used->ru_utime.tv_sec + used->ru_stime.tv_sec) * 1000000000
                     + ((int64_t)used->ru_utime.tv_usec + used->ru_stime.tv_usec) * 1000;
    int64_t end_ns = clock_ns(CLOCK_MONOTONIC);
    size_t length = append(line, 0,
        "{\"end_ns\":%" PRId64 ",\"status\":%d,\"writes_left_out\":%" PRId64 ",\"max_rss_bytes\":%" PRId64,
        end_ns, status, watch.left_out, (int64_t)used->ru_maxrss * 1024);
    if (watch.max_vms_bytes > 0)
        length = append(line, length, ",\"max_vms_bytes\":%" PRId64, watch.max_vms_bytes);
    else
        length = append(line, length, ",\"max_vms_bytes\":null");
    length = append(line, length,
        ",\"major_faults\":%ld,\"read_bytes\":%" PRId64 ",\"cpu_ns\":%" PRId64
        ",\"involuntary_switches\":%ld,\"watch_cpu_ns\":%" PRId64 "}\n",
        used->ru_majflt, (int64_t)used->ru_inblock * BLOCK_BYTES, cpu_ns, used->ru_nivcsw,
        clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    put_line(line, length);
}

static void pass_on(const char *data, size_t length)
{
    while (length > 0 && !watch.cannot_pass_on) {
        ssize_t count = write(STDOUT_FILENO, data, length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0) {
            complain("cannot be passed on", "what the program writes");
            watch.cannot_pass_on = true;
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
        put_write(clock_ns(CLOCK_MONOTONIC), (size_t)count);
        pass_on(buffer, (size_t)count);
    }
    return true;
}

/* A program that this process cannot end any more, because it was killed itself, ends all the
 * same, with all that it has started. */
static pid_t start_guard(int alive_end)
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
        kill(-watch.program, SIGKILL);
    _exit(0);
}

static void be_the_program(char **argv, char **settings, int count, int out, int failed,
                           const sigset_t *mask, pid_t parent)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(128 + SIGKILL);
    unsetenv("ARMLOAD_TRACE"); /* it is this trace */
    for (int i = 0; i < count; i++)
        putenv(settings[i]);
    dup2(out, STDOUT_FILENO);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(argv[0], argv);
    int reason = errno;
    if (write(failed, &reason, sizeof reason) != sizeof reason)
        _exit(CANNOT_RUN);
    _exit(NOT_FOUND);
}

static int could_not_start(const char *name, int reason)
{
    errno = reason;
    bool is_there = strchr(name, '/') != NULL && access(name, F_OK) == 0;
    errno = reason;
    complain(reason == ENOENT && is_there ? "its loader cannot be started" : "cannot be started", name);
    return reason == ENOENT ? NOT_FOUND : CANNOT_RUN;
}

static bool has_ended(void)
{
    siginfo_t about = {0};
    return waitid(P_PID, (id_t)watch.program, &about, WEXITED | WNOHANG | WNOWAIT) == 0
           && about.si_pid == watch.program;
}

static void pass_on_signals(int signals)
{
    struct signalfd_siginfo about;
    while (read(signals, &about, sizeof about) == (ssize_t)sizeof about)
        if (about.ssi_signo != SIGCHLD)
            kill(-watch.program, (int)about.ssi_signo);
}

static void follow(int out, int signals)
{
    bool more = true;
    do {
        int64_t wait_ns = watch.looked_ns + LOOK_EVERY_NS - clock_ns(CLOCK_MONOTONIC);
        struct pollfd files[] = {{.fd = signals, .events = POLLIN},
                                 {.fd = more ? out : -1, .events = POLLIN}};
        poll(files, 2, wait_ns > 0 ? (int)(wait_ns / 1000000) + 1 : 0);
        if (files[1].revents != 0)
            more = take_writes(out);
        if (files[0].revents != 0)
            pass_on_signals(signals);
        int64_t now_ns = clock_ns(CLOCK_MONOTONIC);
        if (now_ns - watch.looked_ns >= LOOK_EVERY_NS)
            look_at_memory(now_ns);
    } while (!has_ended());
    /* What it has left running must not disturb the next run. Its number is kept meanwhile. */
    kill(-watch.program, SIGKILL);
    if (more)
        take_writes(out);
}

static int usage(void)
{
    fputs("usage: watch [-p FILE] [-e NAME=VALUE]... PROGRAM [ARGUMENT]...\n", stderr);
    return 2;
}

static void put_id(const char *path)
{
    FILE *file = path == NULL ? NULL : fopen(path, "we");
    if (path != NULL && (file == NULL || fprintf(file, "%d\n", (int)watch.program) < 0))
        complain("cannot be written", path);
    if (file != NULL)
        fclose(file);
}

int main(int argc, char **argv)
{
    watch.start_ns = clock_ns(CLOCK_MONOTONIC);
    watch.last = (struct counters){.time_ns = watch.start_ns};
    watch.page_bytes = sysconf(_SC_PAGESIZE);
    const char *id_file = NULL;
    char *settings[16];
    int setting_count = 0, option;
    while ((option = getopt(argc, argv, "+p:e:")) != -1) {
        if (option == 'p')
            id_file = optarg;
        else if (option == 'e' && setting_count < 16 && strchr(optarg, '=') != NULL)
            settings[setting_count++] = optarg;
        else
            return usage();
    }
    if (optind == argc)
        return usage();
    char **words = argv + optind;
    open_trace();
    open_sensors();

    /* A pipe of packets keeps each write apart, however late this process is. */
    int out[2], failed[2], alive[2];
    bool whole_writes = pipe2(out, O_DIRECT | O_CLOEXEC) == 0;
    if ((!whole_writes && pipe2(out, O_CLOEXEC) != 0) || pipe2(failed, O_CLOEXEC) != 0
        || pipe2(alive, O_CLOEXEC) != 0) {
        complain("no pipe can be made", words[0]);
        return CANNOT_RUN;
    }
    fcntl(out[0], F_SETPIPE_SZ, PIPE_BYTES);

    sigset_t handled, mask;
    sigemptyset(&handled);
    sigaddset(&handled, SIGCHLD);
    for (size_t i = 0; i < sizeof PASSED_ON / sizeof *PASSED_ON; i++)
        sigaddset(&handled, PASSED_ON[i]);
    sigprocmask(SIG_BLOCK, &handled, &mask);
    signal(SIGPIPE, SIG_IGN);
    int signals = signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK);

    put_header(whole_writes);
    pid_t parent = getpid();
    watch.program = fork();
    if (watch.program == 0) {
        signal(SIGPIPE, SIG_DFL);
        be_the_program(words, settings, setting_count, out[1], failed[1], &mask, parent);
    }
    if (watch.program < 0) {
        complain("no process can be started", words[0]);
        return CANNOT_RUN;
    }
    setpgid(watch.program, watch.program);
    close(out[1]);
    close(failed[1]);
    pid_t guard = start_guard(alive[0]);
    close(alive[0]);
    fcntl(out[0], F_SETFL, fcntl(out[0], F_GETFL) | O_NONBLOCK);

    int reason;
    if (read(failed[0], &reason, sizeof reason) == (ssize_t)sizeof reason) {
        waitpid(watch.program, NULL, 0);
        if (write(alive[1], "", 1) == 1 && guard > 0)
            waitpid(guard, NULL, 0);
        return could_not_start(words[0], reason);
    }
    put_id(id_file);
    watch.statm = open_of_program("statm");
    watch.stat = open_of_program("stat");
    watch.io = open_of_program("io");
    watch.status = open_of_program("status");
    watch.last.major_faults = major_faults();
    watch.last.read_bytes = read_bytes();
    watch.last.switches = count_switches(clock_ns(CLOCK_MONOTONIC));
    look_at_memory(clock_ns(CLOCK_MONOTONIC));

    follow(out[0], signals);

    int ended = 0;
    struct rusage used = {0};
    wait4(watch.program, &ended, 0, &used);
    if (write(alive[1], "", 1) == 1 && guard > 0)
        waitpid(guard, NULL, 0);
    int status = WIFSIGNALED(ended) ? 128 + WTERMSIG(ended) : WEXITSTATUS(ended);
    put_end(status, &used);
    return status == 0 && watch.cannot_pass_on ? 1 : status;
}
