#include "armload_pieces.h"

#include "armload_mapping.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PIECE_BYTES       = 256 << 10,
    MOST_PIECES       = 16384, // each may be a mapping of its own, and Linux allows 65530
    SMALL_BYTES       = 64 << 10,
    SEGMENTS_A_WINDOW = 4,
    NEAR_NODES        = 16,
};

static struct armload_tensor * tensor_at(const struct armload_pieces * pieces, const char * begin) {
    for (int index = 0; index < pieces->tensor_count; index++) {
        if (pieces->tensors[index].begin == begin) {
            return &pieces->tensors[index];
        }
    }
    return NULL;
}

static const struct ggml_tensor * weight_of(const struct ggml_tensor * node, int source) {
    const struct ggml_tensor * tensor = node->src[source];
    if (tensor == NULL || (source == 0 && node->op == GGML_OP_GET_ROWS)) {
        return NULL;
    }
    return tensor->view_src != NULL ? tensor->view_src : tensor;
}

static void add(struct armload_pieces * pieces, const struct ggml_tensor * tensor, int node) {
    struct armload_tensor * known = tensor_at(pieces, tensor->data);
    if (known != NULL) {
        known->repeated = known->repeated || node - known->node > NEAR_NODES;
        known->node     = node;
        return;
    }
    if (pieces->tensor_count % 256 == 0) {
        const size_t room = (size_t) pieces->tensor_count + 256;
        pieces->tensors   = realloc(pieces->tensors, room * sizeof(*pieces->tensors));
    }
    pieces->tensors[pieces->tensor_count++] = (struct armload_tensor) {
        .begin = tensor->data, .bytes = ggml_nbytes(tensor), .node = node,
    };
}

enum armload_unfit armload_collect(struct ggml_cgraph * graph, struct armload_pieces * pieces) {
    struct armload_mapping mapping;
    for (int index = 0; index < ggml_graph_n_nodes(graph); index++) {
        const struct ggml_tensor * node = ggml_graph_node(graph, index);
        for (int source = 0; source < GGML_MAX_SRC; source++) {
            const struct ggml_tensor * tensor = weight_of(node, source);
            if (tensor == NULL || !armload_find_mapping(tensor->data, &mapping)) {
                continue;
            }
            if (node->op == GGML_OP_MUL_MAT_ID && source == 0) {
                return ARMLOAD_UNFIT_EXPERTS;
            }
            add(pieces, tensor, index);
        }
    }
    return pieces->tensor_count > 0 ? ARMLOAD_FIT : ARMLOAD_UNFIT_UNMAPPED;
}

bool armload_locate(struct ggml_cgraph * graph, struct armload_pieces * pieces) {
    bool found = false;
    for (int index = 0; index < pieces->tensor_count; index++) {
        pieces->tensors[index].node = -1;
    }
    for (int index = 0; index < ggml_graph_n_nodes(graph); index++) {
        const struct ggml_tensor * node = ggml_graph_node(graph, index);
        // The engine builds the output for the tokens that need none too, with no columns.
        for (int source = 0; source < GGML_MAX_SRC && !ggml_is_empty(node); source++) {
            const struct ggml_tensor * tensor = weight_of(node, source);
            struct armload_tensor *    known  = tensor == NULL ? NULL : tensor_at(pieces, tensor->data);
            if (known != NULL && known->node < 0) {
                known->node = index;
                found       = true;
            }
        }
    }
    return found;
}

static int64_t least(int64_t one, int64_t other) {
    return one < other ? one : other;
}

static bool always_stays(const struct armload_tensor * tensor) {
    return tensor->repeated || tensor->bytes <= SMALL_BYTES;
}

// What remains to be streamed of a tensor when this share of it stays.
static int64_t streamed_of(const struct armload_tensor * tensor, double share, int64_t most_bytes) {
    if (always_stays(tensor)) {
        return 0;
    }
    return least((int64_t) ((1 - share) * (double) tensor->bytes), most_bytes);
}

static int64_t resident_with(const struct armload_pieces * pieces, double share, int64_t most_bytes) {
    int64_t bytes = 0;
    for (int index = 0; index < pieces->tensor_count; index++) {
        const struct armload_tensor * tensor = &pieces->tensors[index];
        bytes += (int64_t) tensor->bytes - streamed_of(tensor, share, most_bytes);
    }
    return bytes;
}

static double share_for(const struct armload_pieces * pieces, int64_t resident_bytes, int64_t most_bytes) {
    double low  = 0;
    double high = 1;
    for (int round = 0; round < 40; round++) {
        const double middle = (low + high) / 2;
        if (resident_with(pieces, middle, most_bytes) <= resident_bytes) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static void cut_tensor(struct armload_pieces * pieces, struct armload_tensor * tensor, size_t piece_bytes) {
    struct armload_mapping mapping;
    const uintptr_t        page  = (uintptr_t) sysconf(_SC_PAGESIZE) - 1;
    char * const           end   = tensor->begin + tensor->bytes;
    char * const           first = (char *) ((uintptr_t) tensor->begin & ~page);
    char * const           last  = (char *) (((uintptr_t) end + page) & ~page);
    char * const inner_begin     = (char *) (((uintptr_t) tensor->begin + page) & ~page);
    char * const inner_end       = (char *) ((uintptr_t) end & ~page);
    armload_find_mapping(tensor->begin, &mapping);
    tensor->first_piece = pieces->count;
    for (char * begin = first; begin < last; begin += piece_bytes) {
        char * piece_end = begin + least((int64_t) piece_bytes, last - begin);
        pieces->each[pieces->count++] = (struct armload_piece) {
            .begin      = begin,
            .end        = piece_end,
            .drop_begin = begin < inner_begin ? inner_begin : begin,
            .drop_end   = piece_end > inner_end ? inner_end : piece_end,
            .base       = mapping.base,
            .file       = mapping.file,
        };
    }
    tensor->end_piece = pieces->count;
}

// Fractions of a piece are carried over from tensor to tensor.
static void choose_resident(struct armload_pieces * pieces, double share, int64_t most_bytes) {
    double carried_bytes = 0;
    for (int index = 0; index < pieces->tensor_count; index++) {
        const struct armload_tensor * tensor = &pieces->tensors[index];
        carried_bytes += (double) streamed_of(tensor, share, most_bytes);
        for (size_t number = tensor->end_piece; number-- > tensor->first_piece;) {
            struct armload_piece * piece = &pieces->each[number];
            const int64_t          bytes = armload_piece_bytes(piece);
            piece->resident = always_stays(tensor) || carried_bytes < (double) bytes / 2;
            if (piece->resident) {
                pieces->resident_bytes += bytes;
            } else {
                carried_bytes -= (double) bytes;
            }
            pieces->total_bytes += bytes;
        }
    }
}

// A tensor is needed as a whole: one of which more is streamed than the window holds is left to the
// kernel, which reads ahead inside it.
static void choose_mapped(struct armload_pieces * pieces, int64_t most_bytes) {
    for (int index = 0; index < pieces->tensor_count; index++) {
        const struct armload_tensor * tensor   = &pieces->tensors[index];
        int64_t                       streamed = 0;
        for (size_t number = tensor->first_piece; number < tensor->end_piece; number++) {
            const struct armload_piece * piece = &pieces->each[number];
            streamed += piece->resident ? 0 : armload_piece_bytes(piece);
        }
        for (size_t number = tensor->first_piece; number < tensor->end_piece; number++) {
            pieces->each[number].mapped = streamed > most_bytes && !pieces->each[number].resident;
        }
    }
}

static void make_segments(struct armload_pieces * pieces, int64_t segment_bytes) {
    int64_t streamed    = 0;
    pieces->segment_end = calloc((size_t) pieces->tensor_count, sizeof(*pieces->segment_end));
    for (int index = 0; index < pieces->tensor_count; index++) {
        struct armload_tensor * tensor = &pieces->tensors[index];
        int64_t                 bytes  = 0;
        for (size_t number = tensor->first_piece; number < tensor->end_piece; number++) {
            const struct armload_piece * piece = &pieces->each[number];
            bytes += piece->resident || piece->mapped ? 0 : armload_piece_bytes(piece);
        }
        if (streamed + bytes > segment_bytes && streamed > 0) {
            pieces->segment_count++;
            streamed = 0;
        }
        streamed += bytes;
        tensor->segment                            = pieces->segment_count;
        pieces->segment_end[pieces->segment_count] = tensor->end_piece;
    }
    pieces->segment_count++;
}

void armload_cut(struct armload_pieces * pieces, int64_t resident_bytes, int64_t window_bytes) {
    size_t total_bytes = 0;
    for (int index = 0; index < pieces->tensor_count; index++) {
        total_bytes += pieces->tensors[index].bytes;
    }
    size_t piece_bytes = PIECE_BYTES;
    while (total_bytes / piece_bytes > MOST_PIECES) {
        piece_bytes *= 2;
    }
    const size_t most = total_bytes / piece_bytes + 2 * (size_t) pieces->tensor_count;
    pieces->each      = calloc(most, sizeof(*pieces->each));
    for (int index = 0; index < pieces->tensor_count; index++) {
        cut_tensor(pieces, &pieces->tensors[index], piece_bytes);
    }
    int64_t most_bytes = window_bytes / 2;
    if (resident_with(pieces, 0, most_bytes) > resident_bytes) {
        most_bytes = INT64_MAX;
    }
    choose_resident(pieces, share_for(pieces, resident_bytes, most_bytes), most_bytes);
    choose_mapped(pieces, window_bytes / 2 + (int64_t) piece_bytes);
    make_segments(pieces, window_bytes / SEGMENTS_A_WINDOW);
}

void armload_free_pieces(struct armload_pieces * pieces) {
    free(pieces->tensors);
    free(pieces->each);
    free(pieces->segment_end);
    *pieces = (struct armload_pieces) { 0 };
}
