// Weights that do not fit into memory: a part stays there, the rest is read ahead of the computation.
//
//   ARMLOAD_WEIGHTS=streamed   wanted; without it, a program does as plain llama.cpp does
//   ARMLOAD_READS=WAY          direct or buffered, instead of the faster one
//   ARMLOAD_RESIDENT=BYTES     what is to stay in memory, instead of what fits

#pragma once

#include "armload_experts.h"
#include "armload_ways.h"

#include <stdbool.h>
#include <stdint.h>

struct armload_stream {
    const char * unfit;           // why the weights are not streamed; NULL if they are
    int64_t      requested_bytes; // to stay; -1 if that was left to the program
    int64_t      available_bytes; // of memory, before anything was held
    int64_t      weights_bytes;   // that one pass reads
    int64_t      resident_bytes;  // of these, chosen to stay
    int64_t      locked_bytes;
    int64_t      anonymous_bytes;
    int64_t      cached_bytes;
    int64_t      released_bytes;
    int64_t      window_bytes;
    bool         lock_refused;
    struct armload_ways    ways; // in which they are read
    struct armload_experts experts;
};

// Returns false while no graph was computed, and where nobody asked for streaming.
bool armload_stream_state(struct armload_stream * state);

// Time that the computation has waited for the storage.
int64_t armload_stream_wait_ns(void);

// Whether experts are streamed, and how many bytes of them were used and read so far.
bool armload_stream_experts(int64_t * used_bytes, int64_t * missed_bytes);
