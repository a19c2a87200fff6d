// The threads that read weights ahead of the computation, and the window into which they read: memory that the
// engine sees at the addresses of its mapped file.

#pragma once

#include "armload_pieces.h"
#include "armload_ways.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct armload_held {
    int64_t bytes[ARMLOAD_PLACES]; // by where they are held
    int64_t released_bytes;        // because memory ran short
    bool    refused;               // mlock, by RLIMIT_MEMLOCK or because the kernel has none
};

// Where a piece is held, the guard of the memory and the reader's threads change at any time while they run: it is
// looked at and changed with the lock held. No other lock is taken meanwhile but that of the mappings; whoever holds
// the experts' lock may take this one, and not the other way round.
void armload_lock_pieces(void);
void armload_unlock_pieces(void);

// These three are called with the lock held.

// Shows the window at the address of each piece that has a slot, and the file at those of all others
// that do not stay. Returns false where the kernel cannot share memory between two mappings.
bool armload_open_window(struct armload_pieces * pieces);

// The file everywhere, but for what stays.
void armload_close_window(struct armload_pieces * pieces);

// Starts the threads. The pieces stay the caller's, and are not touched after armload_stop_reader, but by
// armload_release_held.
bool armload_start_reader(struct armload_pieces * pieces, bool has_swap);

// Ends the threads, which need the lock for that.
void armload_stop_reader(void);

// Forgets the addresses of pieces that are in the window, which stay there. Seen at many addresses, each
// of its pages would count as often in the process's resident memory.
void armload_hide_window(const struct armload_pieces * pieces, size_t first, size_t end);

// Keeps pages that tensors share in memory, as far as that is permitted.
void armload_lock_edges(const struct armload_pieces * pieces);

// Whether pieces were given up since the start, so that they have no place in the window.
bool armload_reader_lacks_slots(void);

// Positions are counted in pieces, from the start on; each pass over the model goes on where the one
// before it ended. Returns after everything before that position is in memory.
void armload_await_piece(uint64_t position);

// The computation needs nothing before that position any more.
void armload_passed_piece(uint64_t position);

// Weights that a token has chosen, which are read before all that is read ahead.
struct armload_request {
    struct armload_piece from;      // where they are in the file
    char *               into;
    size_t               bytes;     // whole pages, of which the last may end after the file
    size_t               needed;    // of these
    size_t               moved;     // from the beginning on, they are not where they are to be
    size_t               move_from;
    size_t               move_to;
    int *                waiting;   // one less when it is done
};
void armload_read_soon(const struct armload_request * request);

// Returns after as many requests were done as wait there.
void armload_await_requests(const int * waiting);
bool armload_are_read(const int * waiting);

// Keeps memory that is about to be filled, and notes how; ARMLOAD_MAPPED where it cannot be kept.
enum armload_place armload_hold(const char * begin, size_t bytes);
void armload_no_longer_held(enum armload_place place, size_t bytes);

// From now on, nothing more is held.
void armload_hold_no_more(void);

// Gives up that many of the bytes that are held, an equal share of every tensor.
void armload_release_held(int64_t bytes);

struct armload_held armload_held(void);

// How the weights are read, and what was found out about that.
struct armload_ways armload_reader_ways(void);

// Time that armload_await_piece has waited.
int64_t armload_storage_wait_ns(void);

// Both end the program, from a signal handler too, with a reason that a person can read.
void armload_end_program(const char * why);
void armload_end_for_storage_error(void);
