// Memory that weights leave free, for what a graph takes and for everything else on the machine.

#pragma once

#include "armload_memory.h"
#include "ggml.h"

#include <stdbool.h>
#include <stdint.h>

// Returns how much of the available memory is not for weights: the reserve, and what computing this graph takes.
int64_t armload_plan_reserve(const struct armload_memory * memory, struct ggml_cgraph * graph);

// While the guard runs, memory that the reader holds is given back as soon as the reserve is nearly used up.
bool armload_start_guard(void);
void armload_stop_guard(void);

// A longer prompt than any before takes more memory, at once: the guard might come too late.
void armload_make_room_for(struct ggml_cgraph * graph);
