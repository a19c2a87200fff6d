#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "armload_step.h"

#include "armload_memory.h"
#include "armload_sensors.h"
#include "armload_stream.h"
#include "armload_trace_file.h"

#include <inttypes.h>
#include <sys/resource.h>

#ifndef ARMLOAD_ENGINE_COMMIT
#error "ARMLOAD_ENGINE_COMMIT must say which engine this is"
#endif

static struct {
    bool    begun;
    bool    counts_reads;
    int64_t start_ns;
    int64_t steps;
    int64_t page_bytes;
    int     statm;
    bool    streams_weights;
    bool    streams_experts;
    char    weights[ARMLOAD_LINE_BYTES]; // what was last written of them
} trace;

static void count_work(struct armload_counters * counters) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    counters->cpu_ns               = armload_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    counters->major_faults         = usage.ru_majflt;
    counters->involuntary_switches = usage.ru_nivcsw;
    counters->read_bytes           = (int64_t) usage.ru_inblock * ARMLOAD_BLOCK_BYTES;
    counters->storage_wait_ns      = armload_stream_wait_ns();
    counters->used_bytes = counters->missed_bytes = 0;
    trace.streams_experts = armload_stream_experts(&counters->used_bytes, &counters->missed_bytes);
}

// The clock is read last at the start and first at the end, so that counting is not timed.
struct armload_counters armload_count_at_start(void) {
    struct armload_counters counters;
    count_work(&counters);
    counters.time_ns = armload_clock_ns(CLOCK_MONOTONIC);
    return counters;
}

struct armload_counters armload_count_at_end(void) {
    struct armload_counters counters;
    counters.time_ns = armload_clock_ns(CLOCK_MONOTONIC);
    count_work(&counters);
    return counters;
}

static int64_t resident_bytes(void) {
    char text[128];
    long size;
    long resident;
    armload_read_text(trace.statm, text, sizeof(text));
    return sscanf(text, "%ld %ld", &size, &resident) == 2 ? resident * trace.page_bytes : 0;
}

__attribute__((constructor)) static void note_start(void) {
    trace.start_ns = armload_clock_ns(CLOCK_MONOTONIC);
}

void armload_trace_begin(int32_t threads) {
    if (trace.begun) {
        return;
    }
    trace.begun        = true;
    trace.page_bytes   = sysconf(_SC_PAGESIZE);
    trace.statm        = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    trace.counts_reads = access("/proc/self/io", R_OK) == 0;
    armload_open_sensors();
    char   line[ARMLOAD_LINE_BYTES];
    size_t length = armload_append(line, 0,
        "{\"format\":%d,\"clock\":\"CLOCK_MONOTONIC\",\"engine_commit\":\"%s\",\"page_bytes\":%" PRId64
        ",\"threads\":%" PRId32 ",\"start_ns\":%" PRId64,
        ARMLOAD_TRACE_FORMAT, ARMLOAD_ENGINE_COMMIT, trace.page_bytes, threads, trace.start_ns);
    length = armload_append_cores(line, length, "khz_cores", &armload_sensors.core_numbers);
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
        length = armload_append_cores(line, length, "allowed_cores", &allowed);
    }
    armload_trace_head(line, armload_append(line, length, "}\n"));
}

static size_t append_sizes(char * line, size_t length, const struct armload_stream * state) {
    if (state->requested_bytes >= 0) {
        length = armload_append(line, length, ",\"requested_bytes\":%" PRId64, state->requested_bytes);
    }
    if (state->experts.bytes > 0) {
        length = armload_append(line, length,
            ",\"expert_bytes\":%" PRId64 ",\"expert_slot_bytes\":%" PRId64 ",\"expert_held_bytes\":%" PRId64
            ",\"expert_window_bytes\":%" PRId64,
            state->experts.bytes, state->experts.slot_bytes, state->experts.held_bytes,
            state->experts.window_bytes);
    }
    return armload_append(line, length,
        ",\"available_bytes\":%" PRId64 ",\"weights_bytes\":%" PRId64 ",\"resident_bytes\":%" PRId64
        ",\"locked_bytes\":%" PRId64 ",\"anonymous_bytes\":%" PRId64 ",\"cached_bytes\":%" PRId64
        ",\"released_bytes\":%" PRId64 ",\"window_bytes\":%" PRId64 ",\"lock_refused\":%s"
        ",\"reads\":\"%s\",\"reads_because\":\"%s\",\"direct_bytes_per_s\":%" PRId64
        ",\"buffered_bytes_per_s\":%" PRId64,
        state->available_bytes, state->weights_bytes, state->resident_bytes, state->locked_bytes,
        state->anonymous_bytes, state->cached_bytes, state->released_bytes, state->window_bytes,
        state->lock_refused ? "true" : "false", state->ways.reads,
        state->ways.reason == NULL ? "" : state->ways.reason, state->ways.bytes_per_s[ARMLOAD_DIRECT],
        state->ways.bytes_per_s[ARMLOAD_BUFFERED]);
}

// Says how the weights are held, when that has changed.
static void write_weights(void) {
    struct armload_stream state;
    if (!armload_stream_state(&state)) {
        return;
    }
    char   weights[ARMLOAD_LINE_BYTES];
    size_t length = armload_append(weights, 0, "{\"weights\":\"%s\"",
                                   state.unfit == NULL ? "streamed" : "mapped");
    if (state.unfit == NULL) {
        append_sizes(weights, length, &state);
    } else {
        armload_append(weights, length, ",\"reason\":\"%s\"", state.unfit);
    }
    trace.streams_weights = state.unfit == NULL;
    if (strcmp(weights, trace.weights) == 0) {
        return;
    }
    strcpy(trace.weights, weights);
    char line[ARMLOAD_LINE_BYTES];
    armload_trace_put(line, armload_append(line, 0, "%s,\"before_step\":%" PRId64 "}\n", weights, trace.steps));
}

void armload_trace_write(const struct armload_step * step) {
    if (armload_trace_rotate()) {
        trace.weights[0] = '\0'; // each file says how they are held
    }
    write_weights();
    const struct armload_counters * start = &step->start;
    const struct armload_counters * end   = &step->end;
    armload_sense(armload_clock_ns(CLOCK_MONOTONIC));
    char   line[ARMLOAD_LINE_BYTES];
    size_t length = armload_append(line, 0,
        "{\"step\":%" PRId64 ",\"model\":%" PRId32 ",\"sequences\":%" PRId32 ",\"tokens\":%" PRId64
        ",\"prompt_tokens\":%" PRId64 ",\"generated_tokens\":%" PRId64 ",\"speculated_tokens\":%" PRId64
        ",\"accepted_tokens\":%" PRId64 ",\"start_ns\":%" PRId64 ",\"end_ns\":%" PRId64
        ",\"major_faults\":%" PRId64,
        trace.steps++, step->model, step->sequences, step->tokens, step->prompt_tokens,
        step->generated_tokens, step->speculated_tokens, step->accepted_tokens, start->time_ns,
        end->time_ns, end->major_faults - start->major_faults);
    if (step->stage != NULL) {
        length = armload_append(line, length, ",\"stage\":\"%s\"", step->stage);
    }
    if (step->media_tokens > 0) {
        length = armload_append(line, length, ",\"media_tokens\":%" PRId64, step->media_tokens);
    }
    if (trace.counts_reads) {
        length = armload_append(line, length, ",\"read_bytes\":%" PRId64, end->read_bytes - start->read_bytes);
    } else {
        length = armload_append(line, length, ",\"read_bytes\":null");
    }
    length = armload_append(line, length,
        ",\"rss_bytes\":%" PRId64 ",\"cpu_ns\":%" PRId64 ",\"involuntary_switches\":%" PRId64,
        resident_bytes(), end->cpu_ns - start->cpu_ns,
        end->involuntary_switches - start->involuntary_switches);
    if (trace.streams_weights) {
        length = armload_append(line, length,
            ",\"storage_wait_ns\":%" PRId64 ",\"locked_bytes\":%" PRId64,
            end->storage_wait_ns - start->storage_wait_ns, armload_locked_bytes());
    }
    if (trace.streams_weights && trace.streams_experts) {
        length = armload_append(line, length, ",\"expert_bytes\":%" PRId64 ",\"missed_bytes\":%" PRId64,
            end->used_bytes - start->used_bytes, end->missed_bytes - start->missed_bytes);
    }
    if (step->is_shared) {
        length = armload_append(line, length,
            ",\"sync_ns\":%" PRId64 ",\"sent_bytes\":%" PRId64 ",\"received_bytes\":%" PRId64,
            step->sync_ns, step->sent_bytes, step->received_bytes);
    }
    armload_trace_put(line, armload_append_sensors(line, length));
}

void armload_trace_accepted(int32_t model, int64_t tokens) {
    char line[ARMLOAD_LINE_BYTES];
    armload_trace_put(line, armload_append(line, 0,
        "{\"model\":%" PRId32 ",\"accepted_tokens\":%" PRId64 "}\n", model, tokens));
}
