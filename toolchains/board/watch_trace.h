/* The lines of the trace: a head, one for each write, looks at the memory between them, an end. */
#pragma once

#include <inttypes.h>
#include <sys/resource.h>

#include "watch_process.h"

enum {
    MOST_STEPS = 200000, /* a program that writes without end must not fill the storage with notes */
    MEMORY_CHANGED_BYTES = 1 << 20,
};

static struct {
    int file;
    int64_t steps, left_out;
    struct counters last;
    int64_t noted_rss_bytes;
    bool is_cut, complained;
} trace = {.file = -1};

static size_t append_count(char *line, size_t length, const char *name, int64_t now, int64_t before)
{
    if (now == UNKNOWN || before == UNKNOWN || now < before) /* a thread that ended takes its count along */
        return armload_append(line, length, ",\"%s\":null", name);
    return armload_append(line, length, ",\"%s\":%" PRId64, name, now - before);
}

/* A line that is lost shows in the numbers of the writes; the next one may find space again. */
static bool put_line(const char *line, size_t length)
{
    if (trace.file < 0 || armload_put_line(trace.file, &trace.is_cut, line, length))
        return true;
    if (!trace.complained) {
        trace.complained = true;
        complain("cannot be written", "the trace");
    }
    return false;
}

static void open_trace(void)
{
    const char *path;
    trace.file = armload_open_trace(&path);
    if (trace.file < 0 && path != NULL)
        complain("cannot be opened", path);
}

static void put_header(int64_t start_ns, bool whole_writes)
{
    char line[ARMLOAD_LINE_BYTES];
    size_t length = armload_append(line, 0,
        "{\"format\":%d,\"clock\":\"CLOCK_MONOTONIC\",\"source\":\"watch\",\"page_bytes\":%" PRId64
        ",\"whole_writes\":%s,\"start_ns\":%" PRId64,
        ARMLOAD_TRACE_FORMAT, program.page_bytes, whole_writes ? "true" : "false", start_ns);
    length = armload_append_cores(line, length, "khz_cores", &armload_sensors.core_numbers);
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        length = armload_append_cores(line, length, "allowed_cores", &allowed);
    length = armload_append(line, length, "}\n");
    if (!put_line(line, length)) {
        close(trace.file); /* without its first line no other one can be read */
        trace.file = -1;
    }
}

static void put_write(int64_t now_ns, size_t bytes)
{
    if (trace.steps == MOST_STEPS) {
        trace.left_out++;
        return;
    }
    struct counters now = counters_at(now_ns);
    look_at_rss();
    armload_sense(now_ns);
    /* The last words of a program may be read when it has ended already. */
    if (now.cpu_ns == UNKNOWN)
        now.cpu_ns = trace.last.cpu_ns;
    char line[ARMLOAD_LINE_BYTES];
    size_t length = armload_append(line, 0,
        "{\"step\":%" PRId64 ",\"phase\":\"write\",\"bytes\":%zu,\"start_ns\":%" PRId64
        ",\"end_ns\":%" PRId64,
        trace.steps++, bytes, trace.last.time_ns, now.time_ns);
    length = append_count(line, length, "major_faults", now.major_faults, trace.last.major_faults);
    length = append_count(line, length, "read_bytes", now.read_bytes, trace.last.read_bytes);
    length = armload_append(line, length, ",\"rss_bytes\":%" PRId64, program.rss_bytes);
    length = append_count(line, length, "cpu_ns", now.cpu_ns, trace.last.cpu_ns);
    length = append_count(line, length, "involuntary_switches", now.switches, trace.last.switches);
    put_line(line, armload_append_sensors(line, length));
    trace.last = now;
}

/* Between two writes: memory grows while a model is loaded. */
static void put_look(int64_t now_ns)
{
    if (!look_at_peak())
        return;
    if (llabs((long long)(program.rss_bytes - trace.noted_rss_bytes)) < MEMORY_CHANGED_BYTES)
        return;
    trace.noted_rss_bytes = program.rss_bytes;
    char line[ARMLOAD_LINE_BYTES];
    size_t length = armload_append(line, 0, "{\"look_ns\":%" PRId64 ",\"rss_bytes\":%" PRId64 "}\n", now_ns,
                           program.rss_bytes);
    put_line(line, length);
}

static void put_end(int status, const struct rusage *used)
{
    char line[ARMLOAD_LINE_BYTES];
    int64_t cpu_ns = ((int64_t)used->ru_utime.tv_sec + used->ru_stime.tv_sec) * 1000000000
                     + ((int64_t)used->ru_utime.tv_usec + used->ru_stime.tv_usec) * 1000;
    int64_t end_ns = armload_clock_ns(CLOCK_MONOTONIC);
    size_t length = armload_append(line, 0,
        "{\"end_ns\":%" PRId64 ",\"status\":%d,\"writes_left_out\":%" PRId64 ",\"max_rss_bytes\":%" PRId64,
        end_ns, status, trace.left_out, (int64_t)used->ru_maxrss * 1024);
    if (program.max_vms_bytes > 0)
        length = armload_append(line, length, ",\"max_vms_bytes\":%" PRId64, program.max_vms_bytes);
    else
        length = armload_append(line, length, ",\"max_vms_bytes\":null");
    length = armload_append(line, length,
        ",\"major_faults\":%ld,\"read_bytes\":%" PRId64 ",\"cpu_ns\":%" PRId64
        ",\"involuntary_switches\":%ld,\"watch_cpu_ns\":%" PRId64 "}\n",
        used->ru_majflt, (int64_t)used->ru_inblock * ARMLOAD_BLOCK_BYTES, cpu_ns, used->ru_nivcsw,
        armload_clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    put_line(line, length);
}
