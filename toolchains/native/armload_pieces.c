#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "armload_pieces.h"

#include "armload_allocation.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MOST_FILES        = 256,
    PIECE_BYTES       = 256 << 10,
    MOST_PIECES       = 16384, // each may be a mapping of its own, and Linux allows 65530
    SMALL_BYTES       = 64 << 10,
    SEGMENTS_A_WINDOW = 4,
};

struct mapping {
    char *  base; // where the file's first byte would be
    char *  begin;
    char *  end;
    int     file;   // opened anew: the engine closes its own
    int     direct; // the same past the page cache; -1 where the file system cannot do that
    int64_t file_bytes;
};

static struct {
    pthread_mutex_t lock;
    int             count;
    struct mapping  each[MOST_FILES];
} mappings = { .lock = PTHREAD_MUTEX_INITIALIZER };

// Returns false for an address in no mapping.
static bool find_mapping(const void * address, struct mapping * mapping) {
    const char * wanted = address;
    bool         found  = false;
    pthread_mutex_lock(&mappings.lock);
    for (int index = 0; index < mappings.count && !found; index++) {
        const struct mapping * each = &mappings.each[index];
        found = wanted >= each->begin && wanted < each->end;
        if (found) {
            *mapping = *each;
        }
    }
    pthread_mutex_unlock(&mappings.lock);
    return found;
}

int64_t armload_files_bytes(void) {
    int64_t bytes = 0;
    pthread_mutex_lock(&mappings.lock);
    for (int index = 0; index < mappings.count; index++) {
        bytes += mappings.each[index].file_bytes;
    }
    pthread_mutex_unlock(&mappings.lock);
    return bytes;
}

size_t armload_unused_mapped_bytes(bool (*is_used)(const char * begin, const char * end)) {
    size_t bytes = 0;
    pthread_mutex_lock(&mappings.lock);
    for (int index = 0; index < mappings.count; index++) {
        const struct mapping * each = &mappings.each[index];
        bytes += is_used(each->begin, each->end) ? 0 : (size_t) (each->end - each->begin);
    }
    pthread_mutex_unlock(&mappings.lock);
    return bytes;
}

// Without readahead, which would go on into weights that are in memory already. Some file systems promise
// direct I/O, and read through the page cache all the same.
static int open_again(int file, int flags) {
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    const int again = open(path, O_RDONLY | O_CLOEXEC | flags);
    const int own   = again < 0 && flags == 0 ? fcntl(file, F_DUPFD_CLOEXEC, 3) : again;
    posix_fadvise(own, 0, 0, POSIX_FADV_RANDOM);
    return own;
}

void armload_add_mapping(char * address, size_t bytes, int file) {
    struct stat status;
    const int   own = open_again(file, 0);
    if (own < 0 || fstat(own, &status) != 0) {
        return;
    }
    const int direct = open_again(file, O_DIRECT);
    // For what is read when it is used: of a token embedding, single rows.
    madvise(address, bytes, MADV_RANDOM);
    pthread_mutex_lock(&mappings.lock);
    const bool fits = mappings.count < MOST_FILES;
    if (fits) {
        mappings.each[mappings.count++] = (struct mapping) {
            .base = address, .begin = address, .end = address + bytes, .file = own,
            .direct = direct, .file_bytes = status.st_size,
        };
    }
    pthread_mutex_unlock(&mappings.lock);
    if (!fits) {
        close(own);
        close(direct);
    }
}

static void drop(struct mapping * each) {
    close(each->file);
    close(each->direct);
    *each = mappings.each[--mappings.count];
}

// Of a file of which nothing is used, the engine unmaps whole pages and leaves what follows them.
void armload_remove_mapping(char * begin, char * end) {
    const ptrdiff_t page = sysconf(_SC_PAGESIZE);
    pthread_mutex_lock(&mappings.lock);
    for (int index = 0; index < mappings.count; index++) {
        struct mapping * each = &mappings.each[index];
        if (end <= each->begin || begin >= each->end) {
            continue;
        }
        if (begin <= each->begin && each->end - end < page) {
            drop(each);
        } else if (begin <= each->begin) {
            each->begin = end;
        } else {
            each->end = begin;
        }
        break;
    }
    pthread_mutex_unlock(&mappings.lock);
}

// Maps weights a second time; NULL where that fails.
static void * map_again(const char * weights, size_t bytes) {
    struct mapping mapping;
    if (!find_mapping(weights, &mapping)) {
        return NULL;
    }
    const size_t into  = (size_t) ((uintptr_t) weights % (uintptr_t) sysconf(_SC_PAGESIZE));
    char * const again = mmap(NULL, into + bytes, PROT_READ, MAP_SHARED, mapping.file,
                              weights - mapping.base - (off_t) into);
    if (again == MAP_FAILED) {
        return NULL;
    }
    madvise(again, into + bytes, MADV_RANDOM);
    return again + into;
}

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
        known->repeated = true;
        return;
    }
    if (pieces->tensor_count % 256 == 0) {
        const size_t room = (size_t) pieces->tensor_count + 256;
        pieces->tensors   = armload_resized(pieces->tensors, room * sizeof(*pieces->tensors));
    }
    pieces->tensors[pieces->tensor_count++] = (struct armload_tensor) {
        .begin = tensor->data, .bytes = ggml_nbytes(tensor), .node = node,
    };
}

// Experts are no such weights.
static bool are_experts(const struct ggml_tensor * node, int source) {
    return node->op == GGML_OP_MUL_MAT_ID && source == 0;
}

static const char * rows_from(const struct ggml_tensor * node) {
    return node->op == GGML_OP_GET_ROWS ? node->src[0]->data : NULL;
}

static int64_t by_row_bytes(struct ggml_cgraph * graph, const struct armload_pieces * pieces) {
    struct mapping mapping;
    int64_t        bytes = 0;
    for (int index = 0; index < ggml_graph_n_nodes(graph); index++) {
        const char * begin   = rows_from(ggml_graph_node(graph, index));
        bool         is_seen = begin == NULL || tensor_at(pieces, begin) != NULL || !find_mapping(begin, &mapping);
        for (int before = 0; before < index && !is_seen; before++) {
            is_seen = rows_from(ggml_graph_node(graph, before)) == begin;
        }
        bytes += is_seen ? 0 : (int64_t) ggml_nbytes(ggml_graph_node(graph, index)->src[0]);
    }
    return bytes;
}

bool armload_collect(struct ggml_cgraph * graph, struct armload_pieces * pieces) {
    struct mapping mapping;
    for (int index = 0; index < ggml_graph_n_nodes(graph); index++) {
        const struct ggml_tensor * node = ggml_graph_node(graph, index);
        for (int source = 0; source < GGML_MAX_SRC; source++) {
            const struct ggml_tensor * tensor = weight_of(node, source);
            if (tensor != NULL && !are_experts(node, source) && find_mapping(tensor->data, &mapping)) {
                add(pieces, tensor, index);
            }
        }
    }
    pieces->by_row_bytes = by_row_bytes(graph, pieces);
    return pieces->tensor_count > 0;
}

// What stays of a tensor is its beginning.
static bool is_windowed(const struct armload_pieces * pieces, const struct armload_tensor * tensor) {
    return tensor->end_piece > tensor->first_piece
        && pieces->each[tensor->end_piece - 1].slot >= 0;
}

// A token embedding that is the output matrix too is in the window when that is computed, and not when
// rows of it are looked up.
static bool take_rows_from_file(const struct armload_pieces * pieces, struct ggml_tensor * node) {
    const struct ggml_tensor * source = node->src[0];
    struct armload_tensor *    known  = tensor_at(pieces, source->view_src != NULL ? source->view_src->data : source->data);
    if (known == NULL || !is_windowed(pieces, known)) {
        return true;
    }
    if (source->view_src != NULL) {
        return false;
    }
    if (known->rows.data == NULL) {
        known->rows      = *source;
        known->rows.data = map_again(known->begin, known->bytes);
    }
    if (known->rows.data == NULL) {
        return false;
    }
    node->src[0] = &known->rows;
    return true;
}

static void find_segments(struct armload_pieces * pieces) {
    for (int segment = 0; segment < pieces->segment_count; segment++) {
        pieces->segments[segment].node = -1;
    }
    for (int index = 0; index < pieces->tensor_count; index++) {
        const struct armload_tensor * tensor  = &pieces->tensors[index];
        struct armload_segment *      segment = &pieces->segments[tensor->segment];
        if (tensor->node >= 0 && (segment->node < 0 || tensor->node < segment->node)) {
            segment->node = tensor->node;
        }
    }
}

// Whether nothing in the window is used after the next segment's first node.
static bool is_in_order(const struct armload_pieces * pieces) {
    int segment   = -1;
    int next_node = INT_MAX;
    for (int index = pieces->tensor_count; index-- > 0;) {
        const struct armload_tensor * tensor = &pieces->tensors[index];
        if (tensor->node < 0) {
            continue;
        }
        if (tensor->segment != segment) {
            next_node = segment < 0 ? INT_MAX : pieces->segments[segment].node;
            segment   = tensor->segment;
        }
        if (pieces->segments[segment].node >= next_node
            || (is_windowed(pieces, tensor) && tensor->last_node >= next_node)) {
            return false;
        }
    }
    return true;
}

enum armload_order armload_locate(struct ggml_cgraph * graph, struct armload_pieces * pieces) {
    bool found = false;
    for (int index = 0; index < pieces->tensor_count; index++) {
        pieces->tensors[index].node = -1;
    }
    for (int index = 0; index < ggml_graph_n_nodes(graph); index++) {
        struct ggml_tensor * node = ggml_graph_node(graph, index);
        if (node->op == GGML_OP_GET_ROWS && !take_rows_from_file(pieces, node)) {
            return ARMLOAD_OUT_OF_ORDER;
        }
        // The engine builds the output for the tokens that need none too, with no columns.
        for (int source = 0; source < GGML_MAX_SRC && !ggml_is_empty(node); source++) {
            const struct ggml_tensor * tensor = weight_of(node, source);
            struct armload_tensor *    known  = tensor == NULL ? NULL : tensor_at(pieces, tensor->data);
            if (known != NULL) {
                known->node      = known->node < 0 ? index : known->node;
                known->last_node = index;
                found            = true;
            }
        }
    }
    if (!found) {
        return ARMLOAD_OTHER_WEIGHTS;
    }
    find_segments(pieces);
    return is_in_order(pieces) ? ARMLOAD_IN_ORDER : ARMLOAD_OUT_OF_ORDER;
}

static int64_t least(int64_t one, int64_t other) {
    return one < other ? one : other;
}

static bool always_stays(const struct armload_tensor * tensor) {
    return tensor->bytes <= SMALL_BYTES;
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

bool armload_find_in_file(const char * begin, struct armload_piece * piece) {
    struct mapping mapping;
    if (!find_mapping(begin, &mapping)) {
        return false;
    }
    piece->offset = begin - mapping.base;
    piece->file   = mapping.file;
    piece->direct = mapping.direct;
    return true;
}

static void cut_tensor(struct armload_pieces * pieces, struct armload_tensor * tensor) {
    struct mapping  mapping = { 0 };
    const uintptr_t page  = (uintptr_t) sysconf(_SC_PAGESIZE) - 1;
    char * const    first = (char *) (((uintptr_t) tensor->begin + page) & ~page);
    char * const    last  = (char *) ((uintptr_t) (tensor->begin + tensor->bytes) & ~page);
    find_mapping(tensor->begin, &mapping);
    tensor->first_piece = pieces->count;
    for (char * begin = first; begin < last; begin += pieces->piece_bytes) {
        pieces->each[pieces->count++] = (struct armload_piece) {
            .begin  = begin,
            .end    = begin + least((int64_t) pieces->piece_bytes, last - begin),
            .offset = begin - mapping.base,
            .file   = mapping.file,
            .direct = mapping.direct,
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

static bool stays(const struct armload_piece * piece) {
    return piece->resident || piece->place >= ARMLOAD_LOCKED;
}

static int slots_of(const struct armload_pieces * pieces, const struct armload_tensor * tensor) {
    int slots = 0;
    for (size_t number = tensor->first_piece; number < tensor->end_piece; number++) {
        slots += !stays(&pieces->each[number]);
    }
    return slots;
}

static int most_slots_of(const struct armload_pieces * pieces) {
    return pieces->most_slots / 2;
}

bool armload_window_takes_more(const struct armload_pieces * pieces, const struct armload_tensor * tensor) {
    return slots_of(pieces, tensor) < most_slots_of(pieces);
}

// A tensor is needed as a whole, and what follows it is read meanwhile: of one that takes more than
// half of the window, the rest is left to the kernel. So is one that several nodes use.
static int choose_windowed(struct armload_pieces * pieces) {
    int windowed = 0;
    for (int index = 0; index < pieces->tensor_count; index++) {
        const struct armload_tensor * tensor = &pieces->tensors[index];
        const int                     slots  = slots_of(pieces, tensor);
        const bool                    fits   = slots <= most_slots_of(pieces) && !tensor->repeated;
        for (size_t number = tensor->first_piece; number < tensor->end_piece; number++) {
            struct armload_piece * piece = &pieces->each[number];
            if (!stays(piece)) {
                piece->place = fits ? ARMLOAD_IN_WINDOW : ARMLOAD_MAPPED;
                windowed += fits;
            }
        }
    }
    return windowed;
}

static int divided(int count, int by) {
    return (count + by - 1) / by;
}

// In a ring. Each pass begins it anew, so it is so long that a pass ends close to its end.
static void give_slots(struct armload_pieces * pieces, int windowed) {
    const int rounds   = divided(windowed, pieces->most_slots);
    int       given    = 0;
    pieces->slot_count = rounds > 0 ? divided(windowed, rounds) : 0;
    for (size_t number = 0; number < pieces->count; number++) {
        struct armload_piece * piece = &pieces->each[number];
        piece->slot = piece->place == ARMLOAD_IN_WINDOW ? given++ % pieces->slot_count : -1;
    }
}

static void make_segments(struct armload_pieces * pieces) {
    int slots = 0;
    free(pieces->segments);
    pieces->segments      = armload_zeroed((size_t) pieces->tensor_count, sizeof(*pieces->segments));
    pieces->segment_count = 0;
    for (int index = 0; index < pieces->tensor_count; index++) {
        struct armload_tensor * tensor = &pieces->tensors[index];
        const int               more   = is_windowed(pieces, tensor) ? slots_of(pieces, tensor) : 0;
        if (slots > 0 && slots + more > pieces->slot_count / SEGMENTS_A_WINDOW) {
            pieces->segment_count++;
            slots = 0;
        }
        slots += more;
        tensor->segment = pieces->segment_count;
        pieces->segments[tensor->segment].end_piece = tensor->end_piece;
    }
    pieces->segment_count++;
}

void armload_arrange(struct armload_pieces * pieces) {
    give_slots(pieces, choose_windowed(pieces));
    make_segments(pieces);
}

void armload_cut(struct armload_pieces * pieces, int64_t resident_bytes, int64_t window_bytes) {
    size_t total_bytes = 0;
    for (int index = 0; index < pieces->tensor_count; index++) {
        total_bytes += pieces->tensors[index].bytes;
    }
    pieces->piece_bytes = PIECE_BYTES;
    while (total_bytes / pieces->piece_bytes > MOST_PIECES) {
        pieces->piece_bytes *= 2;
    }
    pieces->most_slots = (int) (window_bytes / (int64_t) pieces->piece_bytes);
    const size_t most  = total_bytes / pieces->piece_bytes + (size_t) pieces->tensor_count;
    pieces->each       = armload_zeroed(most, sizeof(*pieces->each));
    for (int index = 0; index < pieces->tensor_count; index++) {
        cut_tensor(pieces, &pieces->tensors[index]);
    }
    // A fraction of a piece may be carried over to a tensor, and its last piece may be a smaller one.
    int64_t most_bytes = window_bytes / 2 - 2 * (int64_t) pieces->piece_bytes;
    if (resident_with(pieces, 0, most_bytes) > resident_bytes) {
        most_bytes = INT64_MAX;
    }
    choose_resident(pieces, share_for(pieces, resident_bytes, most_bytes), most_bytes);
}

bool armload_is_truncated(bool (*is_used)(const char * begin, const char * end)) {
    struct stat status;
    bool        truncated = false;
    pthread_mutex_lock(&mappings.lock);
    for (int index = 0; index < mappings.count && !truncated; index++) {
        const struct mapping * each = &mappings.each[index];
        truncated = is_used(each->begin, each->end) && fstat(each->file, &status) == 0
            && status.st_size < each->file_bytes;
    }
    pthread_mutex_unlock(&mappings.lock);
    return truncated;
}

void armload_free_pieces(struct armload_pieces * pieces) {
    free(pieces->tensors);
    free(pieces->each);
    free(pieces->segments);
    *pieces = (struct armload_pieces) { 0 };
}
