// A projector's weights are needed once per image, and libmtmd frees them when the program ends. What
// it allocates is remembered here, so that the memory can be given back to the kernel before that.

#include "armload_projector.h"

#include "ggml-alloc.h"

#include <cstdint>
#include <set>
#include <sys/mman.h>
#include <unistd.h>

namespace {

std::set<ggml_backend_buffer_t> weights, computing;  // the latter of the last graph: they may grow

void remember(std::set<ggml_backend_buffer_t> & buffers, ggml_backend_buffer_t buffer) {
    if (buffer != nullptr && ggml_backend_buffer_is_host(buffer)) {
        buffers.insert(buffer);
    }
}

// Whole pages alone: what lies beside them is somebody else's.
void release(ggml_backend_buffer_t buffer) {
    const uintptr_t page  = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t base  = reinterpret_cast<uintptr_t>(ggml_backend_buffer_get_base(buffer));
    const uintptr_t begin = (base + page - 1) / page * page;
    const uintptr_t end   = (base + ggml_backend_buffer_get_size(buffer)) / page * page;
    if (begin < end) {
        madvise(reinterpret_cast<void *>(begin), end - begin, MADV_DONTNEED);
    }
}

}  // namespace

ggml_backend_buffer_t armload_backend_alloc_ctx_tensors_from_buft(ggml_context *             context,
                                                                  ggml_backend_buffer_type_t type) {
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(context, type);
    remember(weights, buffer);
    return buffer;
}

ggml_status armload_backend_sched_graph_compute(ggml_backend_sched_t sched, ggml_cgraph * graph) {
    computing.clear();
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
        remember(computing, ggml_graph_node(graph, i)->buffer);
    }
    return ggml_backend_sched_graph_compute(sched, graph);
}

void armload_release_projector() {
    computing.insert(weights.begin(), weights.end());
    for (ggml_backend_buffer_t buffer : computing) {
        release(buffer);
    }
    computing.clear();
    weights.clear();
}
