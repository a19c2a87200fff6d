// Which experts stay: those that were used most of late. Which are read: those that a token has chosen and that have
// no slot, or all of a layer that have none.

#pragma once

#include "armload_slots.h"

#include <stdint.h>

// The expert that a token has chosen in this place.
int32_t armload_chosen(const struct armload_layer * layer, int64_t token, int64_t place);

// Notes what the graph's tokens have chosen.
void armload_count_uses(struct armload_layer * layer);

// Gives the chosen experts slots, and reads those that are missing.
void armload_read_chosen(struct armload_layer * layer);

// Reads a matrix of all experts that do not stay, before it is known which are chosen.
void armload_read_ahead(struct armload_layer * layer, int number);

// Of many tokens, hardly an expert is left unused whose slot another one could take over. Those in the window that
// were used clearly more than ones that stay are moved to their slots when these have been computed with: first what
// is to be moved is chosen, then each matrix is moved after the node that uses it.
void armload_choose_moves(struct armload_layer * layer);
void armload_move_experts(const struct armload_layer * layer, int number);

// The graph needs a layer's experts no more.
void armload_pass_layer(struct armload_layer * layer);

// Bytes of experts that were read so far.
int64_t armload_missed_bytes(void);
