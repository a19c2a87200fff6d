// The memory of experts: of each of a layer's tensors there is an area with a slot for each expert. Its first slots
// stay; the others are one window that all layers share. An expert has the same slot in all areas of its layer.

#pragma once

#include "armload_pieces.h"

#include "ggml.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ARMLOAD_MOST_MATRICES = 4, ARMLOAD_NOWHERE = -1 };

struct armload_matrix {
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

struct armload_move {
    int expert;
    int slot;
};

struct armload_layer {
    struct armload_matrix each[ARMLOAD_MOST_MATRICES];
    int                   matrix_count;
    int                   expert_count;
    int                   slots;     // that stay
    int                   filled;    // of these
    int *                 slot_of;   // each expert; ARMLOAD_NOWHERE if it has none
    int *                 expert_in; // each slot
    double *              keys; // logarithm of the uses, of which older ones count less, and of the time
    bool *                is_used;
    int *                 was_kept;
    int64_t               tokens;  // so far
    struct ggml_tensor    numbers; // of slots, shown in place of the experts'
    int32_t *             each_number;
    // of the graph under way
    struct ggml_tensor *  choice; // the experts' numbers
    int                   position;
    bool                  is_placed;
    bool                  is_chosen;
    bool                  is_passed;
    int                   passing; // experts in the window
    struct armload_move * moves;   // from the window to a slot that stays
    int                   move_count;
};

struct armload_layers {
    struct armload_layer * each;
    int                    count;
};

// What the guard of the memory may change meanwhile is looked at and changed with the lock held.
void armload_lock_layers(void);
void armload_unlock_layers(void);

struct armload_layers armload_layers(void);

struct armload_layer * armload_add_layer(int64_t expert_count);

// Of an expert's matrices, those of one tensor.
void armload_add_matrix(struct armload_layer * layer, const struct ggml_tensor * tensor);
void armload_forget_layers(void);

// The tensor that begins there, and its layer; NULL if it is none of experts.
struct armload_matrix * armload_matrix_at(const void * begin, struct armload_layer ** layer);

// Whether any expert is mapped there.
bool armload_holds_experts(const char * begin, const char * end);

// Bytes of all experts, and of one.
int64_t armload_experts_bytes(void);
int64_t armload_expert_bytes(const struct armload_layer * layer);

// Bytes of the window when no expert stays, and now.
int64_t armload_experts_least_bytes(void);
int64_t armload_experts_window_bytes(void);

// Of slots that are filled, in whole pages.
int64_t armload_experts_held_bytes(void);

// Gives out slots of so many bytes, the window's included or not. Returns false where the kernel cannot share
// memory between mappings.
bool armload_open_experts(int64_t bytes, bool with_window);
void armload_close_experts(void);

// Fills one more slot that stays. Returns whether there is one, and memory for it.
bool armload_fill_slot(struct armload_layer * layer);

// Gives up slots, which takes that many bytes less. Returns how many bytes are still wanted.
int64_t armload_release_experts(int64_t bytes);

size_t armload_whole_pages(size_t bytes);
size_t armload_page_bytes(void);
