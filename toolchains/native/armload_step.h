// One decode step's figures, and the line of the trace that says them.

#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct armload_counters {
    int64_t time_ns;
    int64_t cpu_ns;
    int64_t major_faults;
    int64_t involuntary_switches;
    int64_t read_bytes;
    int64_t storage_wait_ns; // of streamed weights
    int64_t used_bytes;      // of streamed experts
    int64_t missed_bytes;
};

struct armload_step {
    int32_t                 model; // 0 is the main one
    int32_t                 sequences;
    int64_t                 tokens; // the sum of the next three
    int64_t                 prompt_tokens;
    int64_t                 generated_tokens;
    int64_t                 speculated_tokens;
    int64_t                 accepted_tokens; // of those speculated before
    int64_t                 media_tokens;    // of the prompt's, those of images and sounds
    const char *            stage;           // of an image or a sound before the model; NULL for its own
    struct armload_counters start;
    struct armload_counters end;
    bool                    is_shared; // other boards compute parts of it, and the next three count
    int64_t                 sync_ns;   // that the computation took turns with theirs
    int64_t                 sent_bytes;
    int64_t                 received_bytes;
};

// Composes the trace's first line, once.
void armload_trace_begin(int32_t threads);

struct armload_counters armload_count_at_start(void);
struct armload_counters armload_count_at_end(void);

// Looks at memory, frequencies and temperature, and writes the step as one line.
void armload_trace_write(const struct armload_step * step);

// Writes what was accepted after a model's last step.
void armload_trace_accepted(int32_t model, int64_t tokens);

#ifdef __cplusplus
}
#endif
