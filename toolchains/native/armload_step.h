// One decode step's figures, and the trace file that they are written to.

#pragma once

#include <stdbool.h>
#include <stdint.h>

enum armload_phase { ARMLOAD_PROMPT, ARMLOAD_GENERATE };

struct armload_counters {
    int64_t time_ns;
    int64_t cpu_ns;
    int64_t major_faults;
    int64_t involuntary_switches;
    int64_t read_bytes;
};

struct armload_step {
    enum armload_phase      phase;
    int64_t                 tokens;
    struct armload_counters start;
    struct armload_counters end;
};

// Whether ARMLOAD_TRACE names a file that can be written.
bool armload_trace_wanted(void);

// Writes the first line, once.
void armload_trace_begin(int32_t threads);

struct armload_counters armload_count_at_start(void);
struct armload_counters armload_count_at_end(void);

// Looks at memory, frequencies and temperature, and writes the step as one line.
void armload_trace_write(const struct armload_step * step);
