// What a projector takes of memory; see armload_projector.cpp.

#pragma once

#include "ggml-backend.h"

#ifdef __cplusplus
extern "C" {
#endif

// What libmtmd calls in the place of ggml's functions of these names.
ggml_backend_buffer_t armload_backend_alloc_ctx_tensors_from_buft(struct ggml_context *      context,
                                                                  ggml_backend_buffer_type_t type);
enum ggml_status      armload_backend_sched_graph_compute(ggml_backend_sched_t sched, struct ggml_cgraph * graph);

// Gives back the memory of weights and buffers. Nothing may be encoded any more.
void armload_release_projector(void);

#ifdef __cplusplus
}
#endif
