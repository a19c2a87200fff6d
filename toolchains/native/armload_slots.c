#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "armload_slots.h"

#include "armload_allocation.h"
#include "armload_reader.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct {
    pthread_mutex_t        lock;
    struct armload_layer * layers;
    int                    count;
    int                    windows[ARMLOAD_MOST_MATRICES]; // files in memory
    bool                   is_open;
} experts = { .lock = PTHREAD_MUTEX_INITIALIZER };

void armload_lock_layers(void) {
    pthread_mutex_lock(&experts.lock);
}

void armload_unlock_layers(void) {
    pthread_mutex_unlock(&experts.lock);
}

struct armload_layers armload_layers(void) {
    return (struct armload_layers) { experts.layers, experts.count };
}

size_t armload_page_bytes(void) {
    return (size_t) sysconf(_SC_PAGESIZE);
}

size_t armload_whole_pages(size_t bytes) {
    return (bytes + armload_page_bytes() - 1) & ~(armload_page_bytes() - 1);
}

struct armload_matrix * armload_matrix_at(const void * begin, struct armload_layer ** layer) {
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

static struct armload_matrix matrix_of(const struct ggml_tensor * tensor) {
    struct armload_matrix matrix = { .begin = tensor->data, .bytes = tensor->nb[2], .shown = *tensor };
    armload_find_in_file(tensor->data, &matrix.file);
    // Where experts are no whole pages, they begin anywhere in one in the file, and at one place in a slot.
    const size_t page       = armload_page_bytes();
    const bool   is_aligned = matrix.bytes % page == 0;
    matrix.phase            = is_aligned ? (size_t) matrix.file.offset % page : 0;
    matrix.slot_bytes       = armload_whole_pages(matrix.bytes + (is_aligned ? matrix.phase : page - 1));
    return matrix;
}

struct armload_layer * armload_add_layer(int64_t expert_count) {
    if (experts.count % 64 == 0) {
        experts.layers = armload_resized(experts.layers, ((size_t) experts.count + 64) * sizeof(*experts.layers));
    }
    struct armload_layer * layer = &experts.layers[experts.count++];
    const size_t   count = (size_t) expert_count;
    *layer               = (struct armload_layer) {
        .expert_count = (int) expert_count,
        .slot_of      = armload_zeroed(count, sizeof(*layer->slot_of)),
        .expert_in    = armload_zeroed(count, sizeof(*layer->expert_in)),
        .keys         = armload_zeroed(count, sizeof(*layer->keys)),
        .is_used      = armload_zeroed(count, sizeof(*layer->is_used)),
        .was_kept     = armload_zeroed(count, sizeof(*layer->was_kept)),
        .moves        = armload_zeroed(count, sizeof(*layer->moves)),
    };
    for (int expert = 0; expert < layer->expert_count; expert++) {
        layer->slot_of[expert] = ARMLOAD_NOWHERE;
        layer->keys[expert]    = -INFINITY;
    }
    return layer;
}

void armload_add_matrix(struct armload_layer * layer, const struct ggml_tensor * tensor) {
    layer->each[layer->matrix_count++] = matrix_of(tensor);
}

void armload_forget_layers(void) {
    for (int index = 0; index < experts.count; index++) {
        struct armload_layer * layer = &experts.layers[index];
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

int64_t armload_expert_bytes(const struct armload_layer * layer) {
    int64_t bytes = 0;
    for (int number = 0; number < layer->matrix_count; number++) {
        bytes += (int64_t) layer->each[number].bytes;
    }
    return bytes;
}

static int64_t slot_bytes_of(const struct armload_layer * layer) {
    int64_t bytes = 0;
    for (int number = 0; number < layer->matrix_count; number++) {
        bytes += (int64_t) layer->each[number].slot_bytes;
    }
    return bytes;
}

int64_t armload_experts_bytes(void) {
    int64_t bytes = 0;
    for (int index = 0; index < experts.count; index++) {
        bytes += armload_expert_bytes(&experts.layers[index]) * experts.layers[index].expert_count;
    }
    return bytes;
}

// What a layer does not hold of a matrix has its place at the end of the window.
int64_t armload_experts_window_bytes(void) {
    int64_t sum = 0;
    for (int number = 0; number < ARMLOAD_MOST_MATRICES; number++) {
        int64_t begin = INT64_MAX;
        int64_t end   = 0;
        for (int index = 0; index < experts.count; index++) {
            const struct armload_layer * layer = &experts.layers[index];
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
        struct armload_layer * layer = &experts.layers[index];
        carried += share * layer->expert_count;
        layer->slots = carried < layer->expert_count ? (int) carried : layer->expert_count;
        carried -= layer->slots;
        bytes += layer->slots * slot_bytes_of(layer);
    }
    return bytes;
}

int64_t armload_experts_least_bytes(void) {
    give_share(0);
    return armload_experts_window_bytes();
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
        if (taken + (with_window ? armload_experts_window_bytes() : 0) <= bytes) {
            low = middle;
        } else {
            high = middle;
        }
    }
    give_share(low);
}

// Has all slots from one on belong to the window.
static bool show_window(const struct armload_layer * layer, int number, int first_slot, int end_slot) {
    const struct armload_matrix * matrix = &layer->each[number];
    const size_t          begin  = (size_t) first_slot * matrix->slot_bytes;
    const size_t          bytes  = (size_t) (end_slot - first_slot) * matrix->slot_bytes;
    return bytes == 0 || mmap(matrix->area + begin, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                              experts.windows[number], (off_t) begin) != MAP_FAILED;
}

static bool open_window(int number) {
    size_t most = 0;
    for (int index = 0; index < experts.count; index++) {
        const struct armload_layer * layer = &experts.layers[index];
        const size_t         bytes = layer->each[number].slot_bytes * (size_t) layer->expert_count;
        most                       = bytes > most ? bytes : most;
    }
    experts.windows[number] = most > 0 ? memfd_create("armload-experts", MFD_CLOEXEC) : -1;
    return most == 0 || (experts.windows[number] >= 0 && ftruncate(experts.windows[number], (off_t) most) == 0);
}

static bool open_area(struct armload_layer * layer, int number) {
    struct armload_matrix * matrix = &layer->each[number];
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
    experts.is_open = true;
    for (int number = 0; number < ARMLOAD_MOST_MATRICES; number++) {
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
        struct armload_layer * layer = &experts.layers[index];
        for (int number = 0; number < layer->matrix_count; number++) {
            if (layer->each[number].area != NULL) {
                munmap(layer->each[number].area, (size_t) layer->expert_count * layer->each[number].slot_bytes);
            }
        }
    }
    for (int number = 0; number < ARMLOAD_MOST_MATRICES && experts.is_open; number++) {
        close(experts.windows[number]);
    }
    experts.is_open = false;
    armload_forget_layers();
    pthread_mutex_unlock(&experts.lock);
}

static enum armload_place place_of(const struct armload_matrix * matrix, int slot) {
    return slot < matrix->locked ? ARMLOAD_LOCKED : ARMLOAD_ANONYMOUS;
}

// Has a layer keep fewer slots; the others are then the window's. Returns the bytes that are free now.
static int64_t keep_slots(struct armload_layer * layer, int slots) {
    int64_t released = 0;
    for (int slot = slots; slot < layer->filled; slot++) {
        layer->slot_of[layer->expert_in[slot]] = ARMLOAD_NOWHERE;
    }
    for (int number = 0; number < layer->matrix_count; number++) {
        struct armload_matrix * matrix = &layer->each[number];
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
bool armload_fill_slot(struct armload_layer * layer) {
    if (layer->filled == layer->slots) {
        return false;
    }
    for (int number = 0; number < layer->matrix_count; number++) {
        struct armload_matrix *          matrix = &layer->each[number];
        const enum armload_place place  = armload_hold(
            matrix->area + (size_t) layer->filled * matrix->slot_bytes, matrix->slot_bytes);
        if (place == ARMLOAD_MAPPED) {
            while (number-- > 0) {
                struct armload_matrix * held = &layer->each[number];
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

// What a layer takes now or soon stays.
static struct armload_layer * richest(void) {
    struct armload_layer * found = NULL;
    for (int index = 0; index < experts.count; index++) {
        struct armload_layer * layer   = &experts.layers[index];
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
        struct armload_layer * layer = &experts.layers[index];
        if (!layer->is_placed || layer->is_passed) {
            keep_slots(layer, layer->filled);
        }
    }
    for (struct armload_layer * layer = richest(); experts.is_open && bytes > 0 && layer != NULL; layer = richest()) {
        bytes -= keep_slots(layer, layer->filled - 1);
    }
    pthread_mutex_unlock(&experts.lock);
    return bytes;
}

int64_t armload_experts_held_bytes(void) {
    int64_t bytes = 0;
    for (int index = 0; index < experts.count; index++) {
        bytes += slot_bytes_of(&experts.layers[index]) * experts.layers[index].filled;
    }
    return bytes;
}
