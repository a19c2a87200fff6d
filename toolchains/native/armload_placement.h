// Which operations the GPU computed and which the CPU, told on standard error when the program ends.
#ifndef ARMLOAD_PLACEMENT_H
#define ARMLOAD_PLACEMENT_H

#include "ggml-backend.h"

// Counts the operations of a graph whose backends have been chosen.
void armload_note_placement(ggml_backend_sched_t sched, struct ggml_cgraph * graph);

#endif
