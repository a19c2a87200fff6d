// The memory into which weights are read, and which the engine sees at the addresses of its mapped file.

#pragma once

#include "armload_pieces.h"
#include "armload_ways.h"

#include <stdbool.h>
#include <stddef.h>

// Shows the window at the address of each piece that has a slot, and the file at those of all others
// that do not stay. Returns false where the kernel cannot share memory between two mappings.
bool armload_open_window(struct armload_pieces * pieces);

// The file everywhere, but for what stays.
void armload_close_window(struct armload_pieces * pieces);

// Keeps pages that tensors share in memory, as far as that is permitted.
void armload_lock_edges(const struct armload_pieces * pieces);

// Reads from the file: so many bytes from a piece's beginning on into its slot and those that follow, or
// the piece into memory that was claimed for it. Returns false where the file system refused to read
// directly; then it was read through the page cache. Ends the program where the storage fails.
bool armload_read_into_window(const struct armload_piece * piece, const struct armload_turn * turn);
bool armload_read_into_memory(const struct armload_piece * piece, const struct armload_turn * turn);

// Has the kernel read a mapped piece, and nothing beyond it.
void armload_read_into_cache(const struct armload_piece * piece);

// Puts anonymous memory in place of the file. Returns false where there is none.
bool armload_claim_memory(const struct armload_piece * piece);

// Puts the file in place of anything else: the kernel reads it when it is used.
void armload_show_file(const struct armload_piece * piece);

// Forgets the addresses of pieces that are in the window, which stay there. Seen at many addresses, each
// of its pages would count as often in the process's resident memory.
void armload_hide_window(const struct armload_pieces * pieces, size_t first, size_t end);

// Maps weights a second time; NULL where that fails.
void * armload_map_again(const char * weights, size_t bytes);
