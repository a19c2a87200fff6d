#include "armload_graph.h"

#include "armload_allocation.h"
#include "ggml-backend.h"

#include <stdlib.h>
#include <unistd.h>

struct span {
    uintptr_t begin;
    uintptr_t end;
};

static int by_begin(const void * one, const void * other) {
    const struct span * a = one;
    const struct span * b = other;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

static bool is_in_compute_buffer(const struct ggml_tensor * tensor) {
    return tensor != NULL && tensor->data != NULL && tensor->buffer != NULL && !ggml_is_empty(tensor)
        && ggml_backend_buffer_get_usage(tensor->buffer) == GGML_BACKEND_BUFFER_USAGE_COMPUTE;
}

static size_t add_span(struct span * spans, size_t count, const struct ggml_tensor * tensor) {
    if (!is_in_compute_buffer(tensor)) {
        return count;
    }
    const uintptr_t page  = (uintptr_t) sysconf(_SC_PAGESIZE) - 1;
    const uintptr_t begin = (uintptr_t) tensor->data;
    spans[count]          = (struct span) { begin & ~page, (begin + ggml_nbytes(tensor) + page) & ~page };
    return count + 1;
}

// Tensors that are not needed at the same time share memory.
static int64_t sum_of_union(const struct span * spans, size_t count) {
    int64_t   bytes = 0;
    uintptr_t end   = 0;
    for (size_t index = 0; index < count; index++) {
        const uintptr_t begin = spans[index].begin > end ? spans[index].begin : end;
        if (spans[index].end > begin) {
            bytes += (int64_t) (spans[index].end - begin);
            end    = spans[index].end;
        }
    }
    return bytes;
}

int64_t armload_graph_bytes(struct ggml_cgraph * graph) {
    const int     nodes = ggml_graph_n_nodes(graph);
    struct span * spans = armload_zeroed((size_t) nodes, (GGML_MAX_SRC + 1) * sizeof(*spans));
    size_t        count = 0;
    for (int index = 0; index < nodes; index++) {
        const struct ggml_tensor * node = ggml_graph_node(graph, index);
        count = add_span(spans, count, node);
        for (int source = 0; source < GGML_MAX_SRC; source++) {
            count = add_span(spans, count, node->src[source]);
        }
    }
    qsort(spans, count, sizeof(*spans), by_begin);
    const int64_t bytes = sum_of_union(spans, count);
    free(spans);
    return bytes;
}
