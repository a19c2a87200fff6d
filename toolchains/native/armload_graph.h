// The memory that a graph's own tensors take.

#pragma once

#include "ggml.h"

#include <stdint.h>

// Bytes of the engine's compute buffers that computing this graph uses, in whole pages. The buffers are as
// large as the largest graph might need, and what no graph has used takes no memory yet.
int64_t armload_graph_bytes(struct ggml_cgraph * graph);
