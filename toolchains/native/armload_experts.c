#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "armload_experts.h"

#include "armload_allocation.h"
#include "armload_pieces.h"
#include "armload_reader.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    MOST_MATRICES = 4,
    REQUEST_BYTES = 1 << 20, // of a large expert, several are read at a time
    NOWHERE       = -1,
};

// Tokens after which a use counts half, in those after which an expert would be used once if all were used
// alike: long enough to tell frequent ones from others, short enough to follow a text.
static const double HALF_LIFE = 4;

// Moving an expert from the window takes time, so one must have been used twice as much as the one it replaces.
static const double CLEARLY = 1;

// Where so many of a layer's experts are used, all of them are read, before it is known which.
static const double NEARLY_ALL = 0.9;

struct matrix {
    const char *         begin; // of all experts, where the engine has mapped them
    size_t               bytes; // of one
    size_t               slot_bytes;
    size_t               phase; // of an expert in its slot
    struct armload_piece file;
    char *               area;
    struct ggml_tensor   shown; // to the node, in place of the file
    int                  waiting; // requests
    int                  locked;  // of the slots that stay, from the first on
    // of the graph under way
    struct ggml_tensor * node;
    struct ggml_tensor * its_source;
};

struct move {
    int expert;
    int slot;
};

struct layer {
    struct matrix      each[MOST_MATRICES];
    int                matrix_count;
    int                expert_count;
    int                slots;  // that stay
    int                filled; // of these
    int *              slot_of;
    int *              expert_in;
    double *           keys; // logarithm of the uses, of which older ones count less, and of the time
    bool *             is_used;
    int *              was_kept;
    int64_t            tokens; // so far
    struct ggml_tensor numbers; // of slots, shown in place of the experts'
    int32_t *          each_number;
    // of the graph under way
    struct ggml_tensor * choice; // the experts' numbers
    int                  position;
    bool                 is_placed;
    bool                 is_chosen;
    bool                 is_passed;
    int                  passing; // experts in the window
    struct move *        moves;   // from the window to a slot that stays
    int                  move_count;
};

enum what { CHOSEN, BEFORE, AFTER };

struct event {
    const struct ggml_tensor * node; // after which it is
    enum what                  what;
    struct layer *             layer;
    int                        number; // of the matrix
};

static struct {
    pthread_mutex_t lock;
    struct layer *  layers;
    int             count;
    int             windows[MOST_MATRICES]; // files in memory; all layers share them
    size_t          page;
    bool            is_open;
    int64_t         nearly_all; // so many choices are of nearly all experts
    int64_t         used_bytes;
    int64_t         missed_bytes;
    // of the graph under way
    struct event *  events;
    int             event_room;
    int             event_count;
    int             next_event;
    struct layer ** order;
    int             order_count;
} experts = { .lock = PTHREAD_MUTEX_INITIALIZER };

static size_t whole_pages(size_t bytes) {
    return (bytes + experts.page - 1) & ~(experts.page - 1);
}

static struct matrix * matrix_at(const void * begin, struct layer ** layer) {
    for (int index = 0; index < experts.count; index++) {
        *layer = &experts.layers[index];
        for (int number = 0; number < (*layer)->matrix_count; number++) {
            if ((*layer)->each[number].begin == begin) {
                return &(*layer)->each[number];
            }
        }
    }
    return NULL;
}

static bool uses_experts(const struct ggml_tensor * node) {
    struct armload_piece found;
    return node->op == GGML_OP_MUL_MAT_ID && armload_find_in_file(node->src[0]->data, &found);
}

static bool is_plain(const struct ggml_tensor * tensor) {
    return tensor->view_src == NULL && ggml_is_contiguous(tensor) && tensor->ne[3] == 1;
}

static struct matrix matrix_of(const struct ggml_tensor * tensor) {
    struct matrix matrix = { .begin = tensor->data, .bytes = tensor->nb[2], .shown = *tensor };
    armload_find_in_file(tensor->data, &matrix.file);
    // Where experts are no whole pages, they begin anywhere in one in the file, and at one place in a slot.
    const bool is_aligned = matrix.bytes % experts.page == 0;
    matrix.phase          = is_aligned ? (size_t) matrix.file.offset % experts.page : 0;
    matrix.slot_bytes     = whole_pages(is_aligned ? matrix.phase + matrix.bytes : matrix.bytes + experts.page - 1);
    return matrix;
}

static struct layer * add_layer(const struct ggml_tensor * choice, int64_t expert_count) {
    if (experts.count % 64 == 0) {
        experts.layers = armload_resized(experts.layers, ((size_t) experts.count + 64) * sizeof(*experts.layers));
    }
    struct layer * layer = &experts.layers[experts.count++];
    const size_t   count = (size_t) expert_count;
    *layer               = (struct layer) {
        .expert_count = (int) expert_count,
        .choice       = (struct ggml_tensor *) choice,
        .slot_of      = armload_zeroed(count, sizeof(*layer->slot_of)),
        .expert_in    = armload_zeroed(count, sizeof(*layer->expert_in)),
        .keys         = armload_zeroed(count, sizeof(*layer->keys)),
        .is_used      = armload_zeroed(count, sizeof(*layer->is_used)),
        .was_kept     = armload_zeroed(count, sizeof(*layer->was_kept)),
        .moves        = armload_zeroed(count, sizeof(*layer->moves)),
    };
    for (int expert = 0; expert < layer->expert_count; expert++) {
        layer->slot_of[expert] = NOWHERE;
        layer->keys[expert]    = -INFINITY;
    }
    return layer;
}

static void forget(void) {
    for (int index = 0; index < experts.count; index++) {
        struct layer * layer = &experts.layers[index];
        free(layer->slot_of);
        free(layer->expert_in);
        free(layer->keys);
        free(layer->is_used);
        free(layer->was_kept);
        free(layer->moves);
        free(layer->each_number);
    }
    free(experts.layers);
    experts.layers = NULL;
    experts.count  = 0;
}

static const char * not_collected(const char * reason) {
    forget();
    return reason;
}

const char * armload_collect_experts(struct ggml_cgraph * graph) {
    struct layer * layer = NULL;
    experts.page         = (size_t) sysconf(_SC_PAGESIZE);
    forget();
    for (int index = 0; index < ggml_graph_n_nodes(graph); index++) {
        const struct ggml_tensor * node = ggml_graph_node(graph, index);
        if (!uses_experts(node)) {
            continue;
        }
        const struct ggml_tensor * tensor = node->src[0];
        struct layer *             known  = NULL;
        if (!is_plain(tensor) || matrix_at(tensor->data, &known) != NULL) {
            return not_collected("the graph uses its experts in a way that is not known");
        }
        if (layer == NULL || layer->choice != node->src[2] || layer->expert_count != tensor->ne[2]) {
            layer = add_layer(node->src[2], tensor->ne[2]);
        }
        if (layer->matrix_count == MOST_MATRICES) {
            return not_collected("its experts have more matrices than are known");
        }
        layer->each[layer->matrix_count++] = matrix_of(tensor);
    }
    for (int index = 0; index < experts.count; index++) {
        experts.layers[index].choice = NULL;
    }
    return NULL;
}

bool armload_holds_experts(const char * begin, const char * end) {
    for (int index = 0; index < experts.count; index++) {
        for (int number = 0; number < experts.layers[index].matrix_count; number++) {
            const char * weights = experts.layers[index].each[number].begin;
            if (weights >= begin && weights < end) {
                return true;
            }
        }
    }
    return false;
}

static int64_t bytes_of(const struct layer * layer) {
    int64_t bytes = 0;
    for (int number = 0; number < layer->matrix_count; number++) {
        bytes += (int64_t) layer->each[number].bytes;
    }
    return bytes;
}

static int64_t slot_bytes_of(const struct layer * layer) {
    int64_t bytes = 0;
    for (int number = 0; number < layer->matrix_count; number++) {
        bytes += (int64_t) layer->each[number].slot_bytes;
    }
    return bytes;
}

int64_t armload_experts_bytes(void) {
    int64_t bytes = 0;
    for (int index = 0; index < experts.count; index++) {
        bytes += bytes_of(&experts.layers[index]) * experts.layers[index].expert_count;
    }
    return bytes;
}

// What a layer does not hold of a matrix has its place at the end of the window.
static int64_t window_bytes(void) {
    int64_t sum = 0;
    for (int number = 0; number < MOST_MATRICES; number++) {
        int64_t begin = INT64_MAX;
        int64_t end   = 0;
        for (int index = 0; index < experts.count; index++) {
            const struct layer * layer = &experts.layers[index];
            const int64_t        bytes = (int64_t) layer->each[number].slot_bytes;
            if (layer->matrix_count > number && layer->slots < layer->expert_count) {
                begin = bytes * layer->slots < begin ? bytes * layer->slots : begin;
                end   = bytes * layer->expert_count > end ? bytes * layer->expert_count : end;
            }
        }
        sum += end > begin ? end - begin : 0;
    }
    return sum;
}

// An equal share of each layer, which all use as many for a token; fractions of a slot are carried over. Returns
// the bytes of these slots.
static int64_t give_share(double share) {
    double  carried = 0;
    int64_t bytes   = 0;
    for (int index = 0; index < experts.count; index++) {
        struct layer * layer = &experts.layers[index];
        carried += share * layer->expert_count;
        layer->slots = carried < layer->expert_count ? (int) carried : layer->expert_count;
        carried -= layer->slots;
        bytes += layer->slots * slot_bytes_of(layer);
    }
    return bytes;
}

int64_t armload_experts_least_bytes(void) {
    give_share(0);
    return window_bytes();
}

static void give_slots(int64_t bytes, bool with_window) {
    double low  = 0;
    double high = 1;
    if (give_share(1) <= bytes) {
        return;
    }
    for (int round = 0; round < 40; round++) {
        const double  middle = (low + high) / 2;
        const int64_t taken  = give_share(middle);
        if (taken + (with_window ? window_bytes() : 0) <= bytes) {
            low = middle;
        } else {
            high = middle;
        }
    }
    give_share(low);
}

// Has all slots from one on belong to the window.
static bool show_window(const struct layer * layer, int number, int first_slot, int end_slot) {
    const struct matrix * matrix = &layer->each[number];
    const size_t          begin  = (size_t) first_slot * matrix->slot_bytes;
    const size_t          bytes  = (size_t) (end_slot - first_slot) * matrix->slot_bytes;
    return bytes == 0 || mmap(matrix->area + begin, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                              experts.windows[number], (off_t) begin) != MAP_FAILED;
}

static bool open_window(int number) {
    size_t most = 0;
    for (int index = 0; index < experts.count; index++) {
        const struct layer * layer = &experts.layers[index];
        const size_t         bytes = layer->each[number].slot_bytes * (size_t) layer->expert_count;
        most                       = bytes > most ? bytes : most;
    }
    experts.windows[number] = most > 0 ? memfd_create("armload-experts", MFD_CLOEXEC) : -1;
    return most == 0 || (experts.windows[number] >= 0 && ftruncate(experts.windows[number], (off_t) most) == 0);
}

static bool open_area(struct layer * layer, int number) {
    struct matrix * matrix = &layer->each[number];
    const size_t    bytes  = (size_t) layer->expert_count * matrix->slot_bytes;
    const size_t    stays  = (size_t) layer->slots * matrix->slot_bytes;
    void * const    area   = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED) {
        return false;
    }
    matrix->area        = area;
    matrix->shown.data  = matrix->area + matrix->phase;
    matrix->shown.nb[2] = matrix->slot_bytes;
    matrix->shown.nb[3] = bytes;
    return (stays == 0 || mprotect(area, stays, PROT_READ | PROT_WRITE) == 0)
        && show_window(layer, number, layer->slots, layer->expert_count);
}

bool armload_open_experts(int64_t bytes, bool with_window) {
    bool done = true;
    give_slots(bytes, with_window);
    experts.nearly_all = INT64_MAX;
    experts.is_open    = true;
    experts.order      = armload_resized(experts.order, (size_t) experts.count * sizeof(*experts.order));
    for (int number = 0; number < MOST_MATRICES; number++) {
        done = open_window(number) && done;
    }
    for (int index = 0; index < experts.count && done; index++) {
        for (int number = 0; number < experts.layers[index].matrix_count && done; number++) {
            done = open_area(&experts.layers[index], number);
        }
    }
    if (!done) {
        armload_close_experts();
    }
    return done;
}

void armload_close_experts(void) {
    pthread_mutex_lock(&experts.lock);
    for (int index = 0; index < experts.count; index++) {
        struct layer * layer = &experts.layers[index];
        for (int number = 0; number < layer->matrix_count; number++) {
            if (layer->each[number].area != NULL) {
                munmap(layer->each[number].area, (size_t) layer->expert_count * layer->each[number].slot_bytes);
            }
        }
    }
    for (int number = 0; number < MOST_MATRICES && experts.is_open; number++) {
        close(experts.windows[number]);
    }
    experts.is_open = false;
    forget();
    pthread_mutex_unlock(&experts.lock);
}

static void add_event(const struct ggml_tensor * node, enum what what, struct layer * layer, int number) {
    if (experts.event_count == experts.event_room) {
        experts.event_room = 2 * experts.event_room + 64;
        experts.events     = armload_resized(experts.events, (size_t) experts.event_room * sizeof(*experts.events));
    }
    experts.events[experts.event_count++] = (struct event) { node, what, layer, number };
}

// The last node before one after which the numbers that it uses are known, and the layer before is computed; NULL
// if that is so from the start.
static const struct ggml_tensor * chooser_of(struct ggml_cgraph * graph, int index) {
    const struct ggml_tensor * choice = ggml_graph_node(graph, index)->src[2];
    const struct ggml_tensor * root   = choice->view_src != NULL ? choice->view_src : choice;
    const struct ggml_tensor * latest = experts.event_count > 0 ? experts.events[experts.event_count - 1].node : NULL;
    while (index-- > 0) {
        const struct ggml_tensor * node = ggml_graph_node(graph, index);
        if (node == root || node->view_src == root || node == latest) {
            return node;
        }
    }
    return NULL;
}

static bool begin_layer(struct layer * layer, struct ggml_cgraph * graph, int index) {
    struct ggml_tensor * node = ggml_graph_node(graph, index);
    if (layer->choice != NULL || node->src[2]->type != GGML_TYPE_I32) {
        return false;
    }
    layer->choice      = node->src[2];
    const size_t count = (size_t) ggml_nelements(layer->choice);
    layer->each_number = armload_resized(layer->each_number, count * sizeof(*layer->each_number));
    layer->numbers     = *layer->choice;
    layer->numbers.data     = layer->each_number;
    layer->numbers.view_src = NULL;
    layer->numbers.nb[0]    = sizeof(int32_t);
    layer->numbers.nb[1]    = (size_t) layer->choice->ne[0] * sizeof(int32_t);
    layer->numbers.nb[2] = layer->numbers.nb[3] = layer->numbers.nb[1] * (size_t) layer->choice->ne[1];
    layer->position      = experts.order_count;
    experts.order[experts.order_count++] = layer;
    add_event(chooser_of(graph, index), CHOSEN, layer, 0);
    return true;
}

static bool are_whole(void) {
    for (int index = 0; index < experts.order_count; index++) {
        for (int number = 0; number < experts.order[index]->matrix_count; number++) {
            if (experts.order[index]->each[number].node == NULL) {
                return false;
            }
        }
    }
    return true;
}

static bool add_events(struct ggml_cgraph * graph) {
    struct layer * latest = NULL;
    for (int index = 0; index < ggml_graph_n_nodes(graph); index++) {
        struct ggml_tensor * node   = ggml_graph_node(graph, index);
        struct layer *       layer  = NULL;
        struct matrix *      matrix = NULL;
        if (node->op == GGML_OP_MUL_MAT_ID && !ggml_is_empty(node)) {
            matrix = matrix_at(node->src[0]->data, &layer);
        }
        if (matrix == NULL) {
            continue;
        }
        if (layer != latest && !begin_layer(layer, graph, index)) {
            return false;
        }
        latest = layer;
        if (matrix->node != NULL || node->src[2] != layer->choice) {
            return false;
        }
        matrix->node = node;
        add_event(index > 0 ? ggml_graph_node(graph, index - 1) : NULL, BEFORE, layer, (int) (matrix - layer->each));
        add_event(node, AFTER, layer, (int) (matrix - layer->each));
    }
    return are_whole();
}

static void leave_graph(void) {
    for (int index = 0; index < experts.count; index++) {
        struct layer * layer = &experts.layers[index];
        for (int number = 0; number < layer->matrix_count; number++) {
            struct matrix * matrix = &layer->each[number];
            if (matrix->its_source != NULL) {
                matrix->node->src[0] = matrix->its_source;
                matrix->node->src[2] = layer->choice;
            }
            matrix->node = matrix->its_source = NULL;
        }
        layer->choice    = NULL;
        layer->is_placed = layer->is_chosen = layer->is_passed = false;
        layer->passing   = layer->move_count = 0;
    }
    experts.event_count = experts.next_event = experts.order_count = 0;
}

static void use_slots(void) {
    for (int index = 0; index < experts.order_count; index++) {
        struct layer * layer = experts.order[index];
        for (int number = 0; number < layer->matrix_count; number++) {
            struct matrix * matrix = &layer->each[number];
            if (matrix->node != NULL) {
                matrix->its_source   = matrix->node->src[0];
                matrix->node->src[0] = &matrix->shown;
                matrix->node->src[2] = &layer->numbers;
            }
        }
    }
}

static double half_life(const struct layer * layer) {
    return HALF_LIFE * layer->expert_count / (double) layer->choice->ne[0];
}

static int32_t chosen(const struct layer * layer, int64_t token, int64_t place) {
    const struct ggml_tensor * choice = layer->choice;
    const char * const         at = (const char *) choice->data + token * (int64_t) choice->nb[1]
        + place * (int64_t) choice->nb[0];
    return *(const int32_t *) at;
}

// Uses of which each counts half after a while, as a logarithm that grows with time instead: such keys can be
// compared at any time.
static void count_uses(struct layer * layer) {
    const struct ggml_tensor * choice = layer->choice;
    const double               life   = half_life(layer);
    memset(layer->is_used, 0, (size_t) layer->expert_count * sizeof(*layer->is_used));
    for (int64_t token = 0; token < choice->ne[1]; token++) {
        const double now = (double) layer->tokens++ / life;
        for (int64_t place = 0; place < choice->ne[0]; place++) {
            const int32_t expert = chosen(layer, token, place);
            if (expert < 0 || expert >= layer->expert_count) {
                armload_end_program("\narmload: the model chooses an expert that it does not have\n");
            }
            layer->is_used[expert] = true;
            layer->keys[expert]    = now + log2(1 + exp2(layer->keys[expert] - now));
        }
    }
}

static enum armload_place place_of(const struct matrix * matrix, int slot) {
    return slot < matrix->locked ? ARMLOAD_LOCKED : ARMLOAD_ANONYMOUS;
}

static void put(struct layer * layer, int expert, int slot) {
    layer->slot_of[expert] = slot;
    layer->expert_in[slot] = expert;
}

// Has a layer keep fewer slots; the others are then the window's. Returns the bytes that are free now.
static int64_t keep_slots(struct layer * layer, int slots) {
    int64_t released = 0;
    for (int slot = slots; slot < layer->filled; slot++) {
        layer->slot_of[layer->expert_in[slot]] = NOWHERE;
    }
    for (int number = 0; number < layer->matrix_count; number++) {
        struct matrix * matrix = &layer->each[number];
        for (int slot = slots; slot < layer->filled; slot++) {
            armload_no_longer_held(place_of(matrix, slot), matrix->slot_bytes);
            released += (int64_t) matrix->slot_bytes;
        }
        matrix->locked = matrix->locked < slots ? matrix->locked : slots;
        if (!show_window(layer, number, slots, layer->slots)) {
            perror("armload: a part of the window cannot be mapped");
            abort();
        }
    }
    layer->slots  = slots;
    layer->filled = layer->filled < slots ? layer->filled : slots;
    return released;
}

// Fills one more slot. Returns whether there is one, and memory for it.
static bool fill(struct layer * layer) {
    if (layer->filled == layer->slots) {
        return false;
    }
    for (int number = 0; number < layer->matrix_count; number++) {
        struct matrix *          matrix = &layer->each[number];
        const enum armload_place place  = armload_hold(
            matrix->area + (size_t) layer->filled * matrix->slot_bytes, matrix->slot_bytes);
        if (place == ARMLOAD_MAPPED) {
            while (number-- > 0) {
                struct matrix * held = &layer->each[number];
                armload_no_longer_held(place_of(held, layer->filled), held->slot_bytes);
            }
            keep_slots(layer, layer->filled);
            return false;
        }
        matrix->locked += place == ARMLOAD_LOCKED;
    }
    layer->filled++;
    return true;
}

static int least_used(const struct layer * layer) {
    int found = NOWHERE;
    for (int slot = 0; slot < layer->filled; slot++) {
        const int expert = layer->expert_in[slot];
        if (!layer->is_used[expert] && (found == NOWHERE || layer->keys[expert] < layer->keys[layer->expert_in[found]])) {
            found = slot;
        }
    }
    return found;
}

// Gives an expert that has to be read a slot: one that is free, or that of one that was used less, or one of the
// window.
static void place(struct layer * layer, int expert) {
    if (fill(layer)) {
        put(layer, expert, layer->filled - 1);
        return;
    }
    const int slot = layer->is_chosen ? least_used(layer) : NOWHERE;
    if (slot != NOWHERE && layer->keys[layer->expert_in[slot]] < layer->keys[expert]) {
        layer->slot_of[layer->expert_in[slot]] = NOWHERE;
        put(layer, expert, slot);
    } else {
        put(layer, expert, layer->slots + layer->passing++);
    }
}

static void read_expert(struct layer * layer, int number, int expert) {
    struct matrix * matrix = &layer->each[number];
    const size_t    offset = (size_t) matrix->file.offset + (size_t) expert * matrix->bytes;
    const size_t    before = offset % experts.page; // the expert, from the page's beginning
    const size_t    end    = before + matrix->bytes;
    char * const    slot   = matrix->area + (size_t) layer->slot_of[expert] * matrix->slot_bytes;
    const size_t    step   = before == matrix->phase ? REQUEST_BYTES : end;
    for (size_t begin = 0; begin < end; begin += step) {
        const size_t           part_end = begin + step < end ? begin + step : end;
        struct armload_request request  = {
            .from    = matrix->file,
            .into    = slot + begin,
            .bytes   = whole_pages(part_end) - begin,
            .needed  = part_end - begin,
            .waiting = &matrix->waiting,
        };
        request.from.offset = (off_t) (offset - before + begin);
        if (before != matrix->phase) {
            request.moved     = matrix->bytes;
            request.move_from = before;
            request.move_to   = matrix->phase;
        }
        armload_read_soon(&request);
    }
    experts.missed_bytes += (int64_t) matrix->bytes;
}

static void place_missing(struct layer * layer) {
    for (int expert = 0; expert < layer->expert_count; expert++) {
        if (layer->slot_of[expert] == NOWHERE && (layer->is_used[expert] || !layer->is_chosen)) {
            place(layer, expert);
        }
    }
    layer->is_placed = true;
}

static bool is_ahead(const struct layer * layer) {
    return ggml_nelements(layer->choice) >= experts.nearly_all;
}

static struct layer * next_of(const struct layer * layer) {
    return layer->position + 1 < experts.order_count ? experts.order[layer->position + 1] : NULL;
}

// Reads a matrix of all experts that do not stay.
static void read_ahead(struct layer * layer, int number) {
    if (number >= layer->matrix_count) {
        return;
    }
    if (!layer->is_placed) {
        memcpy(layer->was_kept, layer->slot_of, (size_t) layer->expert_count * sizeof(*layer->slot_of));
        place_missing(layer);
    }
    for (int expert = 0; expert < layer->expert_count; expert++) {
        if (layer->was_kept[expert] == NOWHERE) {
            read_expert(layer, number, expert);
        }
    }
}

static void read_chosen(struct layer * layer) {
    memcpy(layer->was_kept, layer->slot_of, (size_t) layer->expert_count * sizeof(*layer->slot_of));
    place_missing(layer);
    for (int number = 0; number < layer->matrix_count; number++) {
        for (int expert = 0; expert < layer->expert_count; expert++) {
            if (layer->is_used[expert] && layer->was_kept[expert] == NOWHERE) {
                read_expert(layer, number, expert);
            }
        }
    }
}

static const double * compared_keys;

static int by_key(const void * one, const void * other) {
    const double a = compared_keys[*(const int *) one];
    const double b = compared_keys[*(const int *) other];
    return (a > b) - (a < b);
}

// Of many tokens, hardly an expert is left unused whose slot another one could take over. Those in the window that
// were used clearly more than ones that stay are moved to their slots when these have been computed with.
static void choose_moves(struct layer * layer) {
    int * const sorted = layer->was_kept;
    const int   stay   = layer->filled;
    int         pass   = 0;
    memcpy(sorted, layer->expert_in, (size_t) stay * sizeof(*sorted));
    for (int expert = 0; expert < layer->expert_count; expert++) {
        if (layer->slot_of[expert] >= layer->slots && layer->is_used[expert]) {
            sorted[stay + pass++] = expert;
        }
    }
    compared_keys = layer->keys;
    qsort(sorted, (size_t) stay, sizeof(*sorted), by_key);
    qsort(sorted + stay, (size_t) pass, sizeof(*sorted), by_key);
    for (int index = 0; index < stay && index < pass; index++) {
        const int other = sorted[stay + pass - 1 - index];
        if (layer->keys[other] <= layer->keys[sorted[index]] + CLEARLY) {
            break;
        }
        layer->moves[layer->move_count++] = (struct move) { other, layer->slot_of[sorted[index]] };
    }
}

static void pass_layer(struct layer * layer) {
    if (layer->is_passed || !layer->is_placed) {
        return;
    }
    layer->is_passed = true;
    for (int expert = 0; expert < layer->expert_count; expert++) {
        if (layer->slot_of[expert] >= layer->slots) {
            layer->slot_of[expert] = NOWHERE;
        }
    }
    for (int index = 0; index < layer->move_count; index++) {
        layer->slot_of[layer->expert_in[layer->moves[index].slot]] = NOWHERE;
        put(layer, layer->moves[index].expert, layer->moves[index].slot);
    }
    // Seen at the addresses of many layers, pages would count as often in the process's resident memory.
    for (int number = 0; number < layer->matrix_count && layer->passing > 0; number++) {
        const struct matrix * matrix = &layer->each[number];
        madvise(matrix->area + (size_t) layer->slots * matrix->slot_bytes,
                (size_t) layer->passing * matrix->slot_bytes, MADV_DONTNEED);
    }
}

static void choose(struct layer * layer) {
    int used = 0;
    pthread_mutex_lock(&experts.lock);
    if (layer->position > 0) {
        pass_layer(experts.order[layer->position - 1]);
    }
    count_uses(layer);
    layer->is_chosen = true;
    if (!layer->is_placed) {
        read_chosen(layer);
    }
    for (int expert = 0; expert < layer->expert_count; expert++) {
        used += layer->is_used[expert];
    }
    experts.used_bytes += used * bytes_of(layer);
    const int64_t choices = ggml_nelements(layer->choice);
    if (used >= NEARLY_ALL * layer->expert_count) {
        experts.nearly_all = choices < experts.nearly_all ? choices : experts.nearly_all;
    } else if (choices >= experts.nearly_all) {
        experts.nearly_all = INT64_MAX;
    }
    int32_t * number = layer->each_number;
    for (int64_t token = 0; token < layer->choice->ne[1]; token++) {
        for (int64_t at = 0; at < layer->choice->ne[0]; at++) {
            *number++ = layer->slot_of[chosen(layer, token, at)];
        }
    }
    if (layer->choice->ne[1] > 1) {
        choose_moves(layer);
    }
    pthread_mutex_unlock(&experts.lock);
}

// A matrix's part of the window is free for the next layer.
static void passed(struct layer * layer, int number) {
    struct layer * const        next   = next_of(layer);
    const struct matrix * const matrix = &layer->each[number];
    for (int index = 0; index < layer->move_count; index++) {
        const struct move * move = &layer->moves[index];
        memcpy(matrix->area + (size_t) move->slot * matrix->slot_bytes,
               matrix->area + (size_t) layer->slot_of[move->expert] * matrix->slot_bytes, matrix->slot_bytes);
    }
    if (next != NULL && is_ahead(next)) {
        pthread_mutex_lock(&experts.lock);
        const int end = number + 1 == layer->matrix_count ? MOST_MATRICES : number + 1;
        for (int each = number; each < end; each++) {
            read_ahead(next, each);
        }
        pthread_mutex_unlock(&experts.lock);
    }
}

static bool is_needed(const struct event * event) {
    switch (event->what) {
        case CHOSEN:
            return true;
        case BEFORE:
            return !armload_are_read(&event->layer->each[event->number].waiting);
        case AFTER:
            break;
    }
    const struct layer * next = next_of(event->layer);
    return event->layer->move_count > 0 || (next != NULL && is_ahead(next));
}

static void act(const struct event * event) {
    switch (event->what) {
        case CHOSEN:
            choose(event->layer);
            break;
        case BEFORE:
            armload_await_requests(&event->layer->each[event->number].waiting);
            break;
        case AFTER:
            passed(event->layer, event->number);
            break;
    }
}

bool armload_experts_follow(const struct ggml_tensor * node) {
    while (experts.next_event < experts.event_count && experts.events[experts.next_event].node == node) {
        if (is_needed(&experts.events[experts.next_event])) {
            return true;
        }
        experts.next_event++;
    }
    return false;
}

void armload_follow_with_experts(const struct ggml_tensor * node) {
    while (experts.next_event < experts.event_count && experts.events[experts.next_event].node == node) {
        act(&experts.events[experts.next_event++]);
    }
}

bool armload_enter_experts(struct ggml_cgraph * graph) {
    pthread_mutex_lock(&experts.lock);
    const bool done = add_events(graph);
    if (done) {
        use_slots();
        if (experts.order_count > 0 && is_ahead(experts.order[0])) {
            for (int number = 0; number < MOST_MATRICES; number++) {
                read_ahead(experts.order[0], number);
            }
        }
    } else {
        leave_graph();
    }
    pthread_mutex_unlock(&experts.lock);
    if (done) {
        armload_follow_with_experts(NULL);
    }
    return done;
}

bool armload_leave_experts(void) {
    pthread_mutex_lock(&experts.lock);
    const bool done = experts.next_event == experts.event_count;
    for (int index = 0; index < experts.order_count; index++) {
        pass_layer(experts.order[index]);
    }
    leave_graph();
    pthread_mutex_unlock(&experts.lock);
    return done;
}

// What a layer takes now or soon stays.
static struct layer * richest(void) {
    struct layer * found = NULL;
    for (int index = 0; index < experts.count; index++) {
        struct layer * layer   = &experts.layers[index];
        const bool     is_busy = layer->is_placed && !layer->is_passed;
        if (!is_busy && layer->filled > 0 && (found == NULL || layer->filled > found->filled)) {
            found = layer;
        }
    }
    return found;
}

int64_t armload_release_experts(int64_t bytes) {
    armload_hold_no_more();
    pthread_mutex_lock(&experts.lock);
    for (int index = 0; experts.is_open && index < experts.count; index++) {
        struct layer * layer = &experts.layers[index];
        if (!layer->is_placed || layer->is_passed) {
            keep_slots(layer, layer->filled);
        }
    }
    for (struct layer * layer = richest(); experts.is_open && bytes > 0 && layer != NULL; layer = richest()) {
        bytes -= keep_slots(layer, layer->filled - 1);
    }
    pthread_mutex_unlock(&experts.lock);
    return bytes;
}

struct armload_experts armload_experts(void) {
    pthread_mutex_lock(&experts.lock);
    struct armload_experts state = {
        .bytes        = armload_experts_bytes(),
        .window_bytes = window_bytes(),
        .used_bytes   = experts.used_bytes,
        .missed_bytes = experts.missed_bytes,
    };
    for (int index = 0; index < experts.count; index++) {
        const struct layer * layer = &experts.layers[index];
        state.slot_bytes += bytes_of(layer) * layer->slots;
        state.held_bytes += slot_bytes_of(layer) * layer->filled;
    }
    pthread_mutex_unlock(&experts.lock);
    return state;
}
