// The trace's steps, in a program that streams no weights.

#include "armload_stream.h"

bool armload_stream_state(struct armload_stream * state) {
    (void) state;
    return false;
}

int64_t armload_stream_wait_ns(void) {
    return 0;
}

bool armload_stream_experts(int64_t * used_bytes, int64_t * missed_bytes) {
    (void) used_bytes;
    (void) missed_bytes;
    return false;
}

#include "armload_step.c"
