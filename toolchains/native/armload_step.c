#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "armload_step.h"

#include "armload_line.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#ifndef ARMLOAD_ENGINE_COMMIT
#error "ARMLOAD_ENGINE_COMMIT must say which engine this is"
#endif

enum {
    TRACE_FORMAT       = 1,
    MAX_CORES          = 128,
    MAX_ZONES          = 64,
    LINE_BYTES         = 4096,
    BLOCK_BYTES        = 512, // of ru_inblock, whatever the disk's block is
    SENSOR_INTERVAL_NS = 100 * 1000 * 1000,
    SENSOR_SHARE       = 400, // reading sensors may take one part in so many of the time
};

static struct {
    int     file;
    bool    begun;
    bool    is_cut;
    bool    complained;
    bool    counts_reads;
    int64_t start_ns;
    int64_t steps;
    int64_t page_bytes;
    int     statm;

    int       core_count;
    int       cores[MAX_CORES];
    cpu_set_t core_numbers;
    int     zone_count;
    int     zones[MAX_ZONES];
    int64_t sensed_ns;
    int64_t sensor_interval_ns;
    long    khz[MAX_CORES];
    long    millicelsius; // of the hottest zone
} trace = { .file = -1 };

#define NO_TEMPERATURE (-1000000L)

static int64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
}

static void count_work(struct armload_counters * counters) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    counters->cpu_ns               = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    counters->major_faults         = usage.ru_majflt;
    counters->involuntary_switches = usage.ru_nivcsw;
    counters->read_bytes           = (int64_t) usage.ru_inblock * BLOCK_BYTES;
}

// The clock is read last at the start and first at the end, so that counting is not timed.
struct armload_counters armload_count_at_start(void) {
    struct armload_counters counters;
    count_work(&counters);
    counters.time_ns = clock_ns(CLOCK_MONOTONIC);
    return counters;
}

struct armload_counters armload_count_at_end(void) {
    struct armload_counters counters;
    counters.time_ns = clock_ns(CLOCK_MONOTONIC);
    count_work(&counters);
    return counters;
}

static bool read_number(int file, long * number) {
    char          text[64];
    const ssize_t count = pread(file, text, sizeof(text) - 1, 0);
    if (count <= 0) {
        return false;
    }
    text[count] = '\0';
    char * end;
    *number = strtol(text, &end, 10);
    return end != text;
}

static void open_sensors(void) {
    char path[128];
    CPU_ZERO(&trace.core_numbers);
    // musl's count of the cores is that of those which this process may use, wherever they begin.
    for (int core = 0; core < MAX_CORES; core++) {
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", core);
        const int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            trace.cores[trace.core_count++] = file;
            CPU_SET(core, &trace.core_numbers);
        }
    }
    DIR * folder = opendir("/sys/class/thermal");
    if (folder == NULL) {
        return;
    }
    const struct dirent * entry;
    while ((entry = readdir(folder)) != NULL && trace.zone_count < MAX_ZONES) {
        if (strncmp(entry->d_name, "thermal_zone", 12) != 0) {
            continue;
        }
        snprintf(path, sizeof(path), "/sys/class/thermal/%.32s/temp", entry->d_name);
        const int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            trace.zones[trace.zone_count++] = file;
        }
    }
    closedir(folder);
}

// Sensors can be slow (some ask a microcontroller), so they are read rarely enough that they
// take at most 1/SENSOR_SHARE of the time; between two readings the last one is repeated.
static void sense(int64_t now_ns) {
    if (trace.sensed_ns != 0 && now_ns - trace.sensed_ns < trace.sensor_interval_ns) {
        return;
    }
    for (int core = 0; core < trace.core_count; core++) {
        if (!read_number(trace.cores[core], &trace.khz[core])) {
            trace.khz[core] = 0; // switched off
        }
    }
    trace.millicelsius = NO_TEMPERATURE;
    for (int zone = 0; zone < trace.zone_count; zone++) {
        long value;
        if (read_number(trace.zones[zone], &value) && value > trace.millicelsius) {
            trace.millicelsius = value;
        }
    }
    trace.sensed_ns = clock_ns(CLOCK_MONOTONIC);
    const int64_t interval_ns = (trace.sensed_ns - now_ns) * SENSOR_SHARE;
    trace.sensor_interval_ns = interval_ns > SENSOR_INTERVAL_NS ? interval_ns : SENSOR_INTERVAL_NS;
}

static int64_t resident_bytes(void) {
    char          text[128];
    const ssize_t count = pread(trace.statm, text, sizeof(text) - 1, 0);
    if (count <= 0) {
        return 0;
    }
    text[count] = '\0';
    long size;
    long resident;
    return sscanf(text, "%ld %ld", &size, &resident) == 2 ? resident * trace.page_bytes : 0;
}

static void complain(const char * what) {
    fprintf(stderr, "armload: the trace %s: %s: %s\n", getenv("ARMLOAD_TRACE"), what,
            strerror(errno));
}

// A line that is lost shows in the numbers of the steps; the next one may find space again.
static bool put_line(const char * line, size_t length) {
    if (armload_put_line(trace.file, &trace.is_cut, line, length)) {
        return true;
    }
    if (!trace.complained) {
        trace.complained = true;
        complain("cannot be written");
    }
    return false;
}

__attribute__((format(printf, 3, 4))) static size_t append(char * line, size_t length,
                                                           const char * format, ...) {
    va_list values;
    va_start(values, format);
    const int added = vsnprintf(line + length, LINE_BYTES - length, format, values);
    va_end(values);
    return length + (size_t) added;
}

// As the kernel writes a set of cores: 0-3,6.
static size_t append_cores(char * line, size_t length, const char * name, const cpu_set_t * cores) {
    length = append(line, length, ",\"%s\":\"", name);
    const char * comma = "";
    for (int first = 0; first < CPU_SETSIZE; first++) {
        if (!CPU_ISSET(first, cores)) {
            continue;
        }
        int last = first;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cores)) {
            last++;
        }
        length = append(line, length, "%s%d", comma, first);
        if (last > first) {
            length = append(line, length, "-%d", last);
        }
        comma = ",";
        first = last;
    }
    return append(line, length, "\"");
}

__attribute__((constructor)) static void open_trace(void) {
    trace.start_ns = clock_ns(CLOCK_MONOTONIC);
    const char * path = getenv("ARMLOAD_TRACE");
    if (path == NULL || path[0] == '\0') {
        return;
    }
    trace.file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    if (trace.file < 0) {
        complain("cannot be opened");
    }
}

bool armload_trace_wanted(void) {
    return trace.file >= 0;
}

void armload_trace_begin(int32_t threads) {
    if (trace.begun) {
        return;
    }
    trace.begun        = true;
    trace.page_bytes   = sysconf(_SC_PAGESIZE);
    trace.statm        = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    trace.counts_reads = access("/proc/self/io", R_OK) == 0;
    open_sensors();
    char   line[LINE_BYTES];
    size_t length = append(line, 0,
        "{\"format\":%d,\"clock\":\"CLOCK_MONOTONIC\",\"engine_commit\":\"%s\",\"page_bytes\":%" PRId64
        ",\"threads\":%" PRId32 ",\"start_ns\":%" PRId64,
        TRACE_FORMAT, ARMLOAD_ENGINE_COMMIT, trace.page_bytes, threads, trace.start_ns);
    length = append_cores(line, length, "khz_cores", &trace.core_numbers);
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
        length = append_cores(line, length, "allowed_cores", &allowed);
    }
    length = append(line, length, "}\n");
    if (!put_line(line, length)) {
        close(trace.file); // without its first line no other one can be read
        trace.file = -1;
    }
}

void armload_trace_write(const struct armload_step * step) {
    if (trace.file < 0) {
        return;
    }
    const struct armload_counters * start = &step->start;
    const struct armload_counters * end   = &step->end;
    sense(clock_ns(CLOCK_MONOTONIC));
    char   line[LINE_BYTES];
    size_t length = append(line, 0,
        "{\"step\":%" PRId64 ",\"phase\":\"%s\",\"tokens\":%" PRId64 ",\"start_ns\":%" PRId64
        ",\"end_ns\":%" PRId64 ",\"major_faults\":%" PRId64,
        trace.steps++, step->phase == ARMLOAD_PROMPT ? "prompt" : "generate", step->tokens,
        start->time_ns, end->time_ns, end->major_faults - start->major_faults);
    if (trace.counts_reads) {
        length = append(line, length, ",\"read_bytes\":%" PRId64, end->read_bytes - start->read_bytes);
    } else {
        length = append(line, length, ",\"read_bytes\":null");
    }
    length = append(line, length,
        ",\"rss_bytes\":%" PRId64 ",\"cpu_ns\":%" PRId64 ",\"involuntary_switches\":%" PRId64
        ",\"cpu_khz\":[",
        resident_bytes(), end->cpu_ns - start->cpu_ns,
        end->involuntary_switches - start->involuntary_switches);
    for (int core = 0; core < trace.core_count; core++) {
        length = append(line, length, core == 0 ? "%ld" : ",%ld", trace.khz[core]);
    }
    if (trace.zone_count > 0 && trace.millicelsius != NO_TEMPERATURE) {
        length = append(line, length, "],\"celsius\":%.1f}\n", (double) trace.millicelsius / 1000);
    } else {
        length = append(line, length, "],\"celsius\":null}\n");
    }
    put_line(line, length);
}
