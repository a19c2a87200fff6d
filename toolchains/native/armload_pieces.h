// The model files that llama.cpp has mapped, and the weights in them that one pass over the model reads, in
// the order in which the graph uses them.

#pragma once

#include "ggml.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum armload_place {
    ARMLOAD_MAPPED,    // the kernel reads it
    ARMLOAD_IN_WINDOW, // read again for each pass
    ARMLOAD_LOCKED,    // from here on: stays in memory
    ARMLOAD_ANONYMOUS, // where locking is refused
    ARMLOAD_CACHED,    // mapped, where swap could take anonymous memory
    ARMLOAD_PLACES,
};

// Part of one tensor, of whole pages that it shares with no other.
struct armload_piece {
    char *             begin;
    char *             end;
    off_t              offset; // in the file
    int                file;
    int                direct; // the same past the page cache; -1 where that cannot be
    int                slot;     // of the window; -1 without one
    bool               resident; // is to stay in memory
    enum armload_place place;    // changes while streaming runs, but for what has a slot
};

struct armload_tensor {
    char *             begin;
    size_t             bytes;
    int                node;      // of the latest graph, the first that uses it; -1 if none does
    int                last_node; // that uses it
    int                segment;
    size_t             first_piece;
    size_t             end_piece;
    bool               repeated; // used by several nodes
    struct ggml_tensor rows;     // the same weights in the file, for nodes that read single rows
};

// Is computed when all of it is in memory; then the window has room for what follows.
struct armload_segment {
    size_t end_piece;
    int    node; // of the latest graph, the first that needs it; -1 if none does
};

struct armload_pieces {
    struct armload_tensor *  tensors;
    int                      tensor_count;
    struct armload_piece *   each;
    size_t                   count;
    struct armload_segment * segments;
    int                      segment_count;
    size_t                   piece_bytes; // of the largest, and of a slot
    int                      most_slots;
    int                      slot_count;
    int64_t                  total_bytes;
    int64_t                  resident_bytes;
    int64_t                  by_row_bytes; // of embeddings in the file of which only single rows are read
};

enum armload_order { ARMLOAD_OTHER_WEIGHTS, ARMLOAD_IN_ORDER, ARMLOAD_OUT_OF_ORDER };

// A model's file has been mapped there; these addresses are about to be unmapped.
void armload_add_mapping(char * address, size_t bytes, int file);
void armload_remove_mapping(char * begin, char * end);

// Bytes of all files that are mapped, be it in part.
int64_t armload_files_bytes(void);

// Bytes of the mappings in which nothing is used.
size_t armload_unused_mapped_bytes(bool (*is_used)(const char * begin, const char * end));

// Collects the tensors of a graph. A token embedding of which single rows are read is none of them, and experts
// are not, of which the graph names all and uses a few. Returns false if none is mapped.
bool armload_collect(struct ggml_cgraph * graph, struct armload_pieces * pieces);

// Where mapped weights are in their file. Returns false for an address in no mapping.
bool armload_find_in_file(const char * begin, struct armload_piece * piece);

// Cuts the tensors into pieces, and chooses those that stay: small tensors, as much of the large ones
// as a window of that size does not take, and an equal share of all others, so that storage and CPU
// are busy at the same time.
void armload_cut(struct armload_pieces * pieces, int64_t resident_bytes, int64_t window_bytes);

// Gives each piece that does not stay its slot of the window, in order, and divides the pass into
// segments that fit there. A tensor that does not fit is left to the kernel.
void armload_arrange(struct armload_pieces * pieces);

// Whether a tensor's streamed part could be one piece larger and still fit into the window.
bool armload_window_takes_more(const struct armload_pieces * pieces, const struct armload_tensor * tensor);

// Looks up where this graph uses the tensors. What is in the window must be used segment by segment.
enum armload_order armload_locate(struct ggml_cgraph * graph, struct armload_pieces * pieces);

// Whether a file that holds weights has become shorter than it was.
bool armload_is_truncated(bool (*is_used)(const char * begin, const char * end));

void armload_free_pieces(struct armload_pieces * pieces);

static inline int64_t armload_piece_bytes(const struct armload_piece * piece) {
    return piece->end - piece->begin;
}
