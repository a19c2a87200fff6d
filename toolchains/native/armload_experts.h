// The experts of a mixture that does not fit into memory: as many as fit stay there, in slots that the most
// used ones take over from others; the rest pass through a window when a token has chosen them. A node that computes
// with experts gets these slots in place of the file, and their numbers in place of the experts'.

#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ggml_cgraph;
struct ggml_tensor;

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

// Before a graph is computed: has its nodes use the slots. Returns false, and changes nothing, if it uses them in
// another way than the first one.
bool armload_enter_experts(struct ggml_cgraph * graph);

// While it is computed, for each node in order: whether something is to be done after it, and that being done.
bool armload_experts_follow(const struct ggml_tensor * node);
void armload_follow_with_experts(const struct ggml_tensor * node);

// After it was computed. Returns false if it was not computed to its end: some experts may not have been read.
bool armload_leave_experts(void);

struct armload_experts armload_experts(void);
