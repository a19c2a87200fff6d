// The thread that reads weights ahead of the computation, and drops them behind it.

#pragma once

#include "armload_pieces.h"

#include <stdbool.h>
#include <stdint.h>

struct armload_held {
    int64_t locked_bytes;    // with mlock
    int64_t anonymous_bytes; // copied, where locking is not permitted
    int64_t cached_bytes;    // in the page cache, where neither is possible
    int64_t released_bytes;  // because memory ran short
    bool    refused;         // mlock, by RLIMIT_MEMLOCK or because the kernel has none
};

// Whether the kernel and the file system read ahead on request: page by page, streaming is slower than
// what the kernel does by itself.
bool armload_can_read_ahead(const char * weights);

// Starts the thread. The pieces stay the caller's, and are not touched after armload_stop_reader.
bool armload_start_reader(struct armload_pieces * pieces, int64_t window_bytes, bool has_swap);
void armload_stop_reader(void);

// Positions are counted in pieces; each pass over the model goes on where the one before it ended.
// Returns after everything before that position is in memory.
void armload_await_piece(uint64_t position);

// The computation needs nothing before that position any more.
void armload_passed_piece(uint64_t position);

// Gives up that many of the bytes that are held, an equal share of every tensor.
void armload_release_held(int64_t bytes);

struct armload_held armload_held(void);

// Time that armload_await_piece has waited.
int64_t armload_storage_wait_ns(void);
