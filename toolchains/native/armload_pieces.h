// The weights that one pass over the model reads, in the order in which the graph uses them.

#pragma once

#include "ggml.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Part of one tensor, of whole pages. Pages that it shares with its neighbours are not dropped.
struct armload_piece {
    char *  begin;
    char *  end;
    char *  drop_begin;
    char *  drop_end;
    char *  base; // of the file's mapping
    int     file;
    bool    resident; // is to stay in memory
    bool    held;     // stays in memory
    bool    anonymous;
    bool    mapped; // left to the kernel: more than fits beside the window
};

struct armload_tensor {
    char * begin;
    size_t bytes;
    int    node; // of the latest graph; -1 if that does not use it
    int    segment;
    size_t first_piece;
    size_t end_piece;
    bool   repeated; // used by nodes that are far apart
};

struct armload_pieces {
    struct armload_tensor * tensors;
    int                     tensor_count;
    struct armload_piece *  each;
    size_t                  count;
    size_t *                segment_end; // one past the last piece of each
    int                     segment_count;
    int64_t                 total_bytes;
    int64_t                 resident_bytes;
};

enum armload_unfit { ARMLOAD_FIT, ARMLOAD_UNFIT_EXPERTS, ARMLOAD_UNFIT_UNMAPPED };

// Collects the tensors of a graph. A token embedding of which single rows are read is none of them.
// Returns why they cannot be streamed, if so: of a mixture of experts the graph names all of them, and
// uses a few.
enum armload_unfit armload_collect(struct ggml_cgraph * graph, struct armload_pieces * pieces);

// Cuts the tensors into pieces, and chooses those that stay: small tensors, as much of the large ones
// as a window of that size does not take, and an equal share of all others, so that storage and CPU
// are busy at the same time.
void armload_cut(struct armload_pieces * pieces, int64_t resident_bytes, int64_t window_bytes);

// Looks up where this graph uses the tensors. Returns false if it uses none of them: another model's.
bool armload_locate(struct ggml_cgraph * graph, struct armload_pieces * pieces);

void armload_free_pieces(struct armload_pieces * pieces);

static inline int64_t armload_piece_bytes(const struct armload_piece * piece) {
    return piece->end - piece->begin;
}
