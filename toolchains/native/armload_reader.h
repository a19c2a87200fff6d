// The threads that read weights ahead of the computation.

#pragma once

#include "armload_pieces.h"
#include "armload_ways.h"

#include <stdbool.h>
#include <stdint.h>

struct armload_held {
    int64_t bytes[ARMLOAD_PLACES]; // by where they are held
    int64_t released_bytes;        // because memory ran short
    bool    refused;               // mlock, by RLIMIT_MEMLOCK or because the kernel has none
};

// Starts the threads. The pieces stay the caller's, and are not touched after armload_stop_reader.
bool armload_start_reader(struct armload_pieces * pieces, bool has_swap);
void armload_stop_reader(void);

// Whether pieces were given up since the start, so that they have no place in the window.
bool armload_reader_lacks_slots(void);

// Positions are counted in pieces, from the start on; each pass over the model goes on where the one
// before it ended. Returns after everything before that position is in memory.
void armload_await_piece(uint64_t position);

// The computation needs nothing before that position any more.
void armload_passed_piece(uint64_t position);

// Gives up that many of the bytes that are held, an equal share of every tensor.
void armload_release_held(int64_t bytes);

struct armload_held armload_held(void);

// How the weights are read, and what was found out about that.
struct armload_ways armload_reader_ways(void);

// Time that armload_await_piece has waited.
int64_t armload_storage_wait_ns(void);
