#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "armload_cache.h"

#include "armload_reader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { REQUEST_BYTES = 1 << 20 }; // of a large expert, several are read at a time

// Tokens after which a use counts half, in those after which an expert would be used once if all were used
// alike: long enough to tell frequent ones from others, short enough to follow a text.
static const double HALF_LIFE = 4;

// Moving an expert from the window takes time, so one must have been used twice as much as the one it replaces.
static const double CLEARLY = 1;

static int64_t missed_bytes;

static double half_life(const struct armload_layer * layer) {
    return HALF_LIFE * layer->expert_count / (double) layer->choice->ne[0];
}

int32_t armload_chosen(const struct armload_layer * layer, int64_t token, int64_t place) {
    const struct ggml_tensor * choice = layer->choice;
    const char * const         at = (const char *) choice->data + token * (int64_t) choice->nb[1]
        + place * (int64_t) choice->nb[0];
    return *(const int32_t *) at;
}

// Uses of which each counts half after a while, as a logarithm that grows with time instead: such keys can be
// compared at any time.
void armload_count_uses(struct armload_layer * layer) {
    const struct ggml_tensor * choice = layer->choice;
    const double               life   = half_life(layer);
    memset(layer->is_used, 0, (size_t) layer->expert_count * sizeof(*layer->is_used));
    for (int64_t token = 0; token < choice->ne[1]; token++) {
        const double now = (double) layer->tokens++ / life;
        for (int64_t place = 0; place < choice->ne[0]; place++) {
            const int32_t expert = armload_chosen(layer, token, place);
            if (expert < 0 || expert >= layer->expert_count) {
                fputs("armload: the model chooses an expert that it does not have\n", stderr);
                abort();
            }
            layer->is_used[expert] = true;
            layer->keys[expert]    = now + log2(1 + exp2(layer->keys[expert] - now));
        }
    }
}

static void put(struct armload_layer * layer, int expert, int slot) {
    layer->slot_of[expert] = slot;
    layer->expert_in[slot] = expert;
}

static int least_used(const struct armload_layer * layer) {
    int found = ARMLOAD_NOWHERE;
    for (int slot = 0; slot < layer->filled; slot++) {
        const int expert = layer->expert_in[slot];
        if (layer->is_used[expert]) {
            continue;
        }
        if (found == ARMLOAD_NOWHERE || layer->keys[expert] < layer->keys[layer->expert_in[found]]) {
            found = slot;
        }
    }
    return found;
}

// Gives an expert that has to be read a slot: one that is free, or that of one that was used less, or one of the
// window.
static void place(struct armload_layer * layer, int expert) {
    if (armload_fill_slot(layer)) {
        put(layer, expert, layer->filled - 1);
        return;
    }
    const int slot = layer->is_chosen ? least_used(layer) : ARMLOAD_NOWHERE;
    if (slot != ARMLOAD_NOWHERE && layer->keys[layer->expert_in[slot]] < layer->keys[expert]) {
        layer->slot_of[layer->expert_in[slot]] = ARMLOAD_NOWHERE;
        put(layer, expert, slot);
    } else {
        put(layer, expert, layer->slots + layer->passing++);
    }
}

static void read_expert(struct armload_layer * layer, int number, int expert) {
    struct armload_matrix * matrix = &layer->each[number];
    const size_t    offset = (size_t) matrix->file.offset + (size_t) expert * matrix->bytes;
    const size_t    before = offset % armload_page_bytes(); // the expert, from the page's beginning
    const size_t    end    = before + matrix->bytes;
    char * const    slot   = matrix->area + (size_t) layer->slot_of[expert] * matrix->slot_bytes;
    const size_t    step   = before == matrix->phase ? REQUEST_BYTES : end;
    for (size_t begin = 0; begin < end; begin += step) {
        const size_t           part_end = begin + step < end ? begin + step : end;
        struct armload_request request  = {
            .from    = matrix->file,
            .into    = slot + begin,
            .bytes   = armload_whole_pages(part_end) - begin,
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
    missed_bytes += (int64_t) matrix->bytes;
}

static void place_missing(struct armload_layer * layer) {
    for (int expert = 0; expert < layer->expert_count; expert++) {
        if (layer->slot_of[expert] == ARMLOAD_NOWHERE && (layer->is_used[expert] || !layer->is_chosen)) {
            place(layer, expert);
        }
    }
    layer->is_placed = true;
}

void armload_read_ahead(struct armload_layer * layer, int number) {
    if (number >= layer->matrix_count) {
        return;
    }
    if (!layer->is_placed) {
        memcpy(layer->was_kept, layer->slot_of, (size_t) layer->expert_count * sizeof(*layer->slot_of));
        place_missing(layer);
    }
    for (int expert = 0; expert < layer->expert_count; expert++) {
        if (layer->was_kept[expert] == ARMLOAD_NOWHERE) {
            read_expert(layer, number, expert);
        }
    }
}

void armload_read_chosen(struct armload_layer * layer) {
    memcpy(layer->was_kept, layer->slot_of, (size_t) layer->expert_count * sizeof(*layer->slot_of));
    place_missing(layer);
    for (int number = 0; number < layer->matrix_count; number++) {
        for (int expert = 0; expert < layer->expert_count; expert++) {
            if (layer->is_used[expert] && layer->was_kept[expert] == ARMLOAD_NOWHERE) {
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

void armload_choose_moves(struct armload_layer * layer) {
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
        layer->moves[layer->move_count++] = (struct armload_move) { other, layer->slot_of[sorted[index]] };
    }
}

void armload_move_experts(const struct armload_layer * layer, int number) {
    const struct armload_matrix * matrix = &layer->each[number];
    for (int index = 0; index < layer->move_count; index++) {
        const struct armload_move * move = &layer->moves[index];
        memcpy(matrix->area + (size_t) move->slot * matrix->slot_bytes,
               matrix->area + (size_t) layer->slot_of[move->expert] * matrix->slot_bytes, matrix->slot_bytes);
    }
}

void armload_pass_layer(struct armload_layer * layer) {
    if (layer->is_passed || !layer->is_placed) {
        return;
    }
    layer->is_passed = true;
    for (int expert = 0; expert < layer->expert_count; expert++) {
        if (layer->slot_of[expert] >= layer->slots) {
            layer->slot_of[expert] = ARMLOAD_NOWHERE;
        }
    }
    for (int index = 0; index < layer->move_count; index++) {
        layer->slot_of[layer->expert_in[layer->moves[index].slot]] = ARMLOAD_NOWHERE;
        put(layer, layer->moves[index].expert, layer->moves[index].slot);
    }
    // Seen at the addresses of many layers, pages would count as often in the process's resident memory.
    for (int number = 0; number < layer->matrix_count && layer->passing > 0; number++) {
        const struct armload_matrix * matrix = &layer->each[number];
        madvise(matrix->area + (size_t) layer->slots * matrix->slot_bytes,
                (size_t) layer->passing * matrix->slot_bytes, MADV_DONTNEED);
    }
}

int64_t armload_missed_bytes(void) {
    return missed_bytes;
}
