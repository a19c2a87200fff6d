// The experts of a mixture that does not fit into memory: as many as fit stay there, in slots that the most
// used ones take over from others; the rest pass through a window when a token has chosen them.
//
// An expert is all of its matrices, of which each layer has the same number. Of each tensor there is an area with
// a slot for each expert. Its first slots stay; the others are one window that all layers share. A node that
// computes with experts gets that area in place of the file, and the numbers of slots in place of those of experts.

#pragma once

#include "ggml.h"

#include <stdbool.h>
#include <stdint.h>

struct armload_experts {
    int64_t bytes;        // of all; 0 of a model that has none
    int64_t slot_bytes;   // of these, that have a slot that stays
    int64_t held_bytes;   // of slots that are filled, in whole pages
    int64_t window_bytes; // that those pass through which have none
    int64_t used_bytes;   // by all graphs so far, each expert once in each of them
    int64_t missed_bytes; // read for that
};

// Collects the experts that a graph uses. Returns why they cannot be streamed; NULL if they can.
const char * armload_collect_experts(struct ggml_cgraph * graph);

// Whether any of them is mapped there.
bool armload_holds_experts(const char * begin, const char * end);

int64_t armload_experts_bytes(void);

// Bytes of the window when no expert stays.
int64_t armload_experts_least_bytes(void);

// Gives out slots of so many bytes, the window's included or not. Returns false where the kernel cannot share
// memory between mappings.
bool armload_open_experts(int64_t bytes, bool with_window);
void armload_close_experts(void);

// Before a graph is computed: has its nodes use the slots. Returns false, and changes nothing, if it uses them in
// another way than the first one.
bool armload_enter_experts(struct ggml_cgraph * graph);

// While it is computed, for each node in order: whether something is to be done after it, and that being done.
bool armload_experts_follow(const struct ggml_tensor * node);
void armload_follow_with_experts(const struct ggml_tensor * node);

// After it was computed. Returns false if it was not computed to its end: some experts may not have been read.
bool armload_leave_experts(void);

// Gives up slots, which takes that many bytes less. Returns how many bytes are still wanted.
int64_t armload_release_experts(int64_t bytes);

struct armload_experts armload_experts(void);
