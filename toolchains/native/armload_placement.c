#include "armload_placement.h"

#include "ggml.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MOST_KINDS = 256, MOST_DEVICES = 16, NAME_BYTES = 256 };

// Operations of one name on one type of data, all computed by the CPU.
struct kind {
    const char * name; // of those that are compared, ggml has one copy
    const char * type;
    bool         unsupported; // by the GPU; else llama.cpp left it to the CPU
    int64_t      count;
};

static struct {
    pthread_mutex_t    lock;
    int64_t            passes;
    struct kind        kinds[MOST_KINDS];
    int                kinds_used;
    int64_t            others; // on the CPU, of kinds for which there was no room
    ggml_backend_dev_t devices[MOST_DEVICES];
    int64_t            counts[MOST_DEVICES];
    char               names[MOST_DEVICES][NAME_BYTES]; // when the program ends, ggml's are gone
    int                devices_used;
} state = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool computes(const struct ggml_tensor * node) {
    switch (node->op) {
        case GGML_OP_NONE:
        case GGML_OP_VIEW:
        case GGML_OP_RESHAPE:
        case GGML_OP_PERMUTE:
        case GGML_OP_TRANSPOSE:
            return false;
        default:
            return !ggml_is_empty(node);
    }
}

static void count_on_cpu(ggml_backend_dev_t gpu, const struct ggml_tensor * node) {
    const char * name = ggml_op_desc(node);
    const char * type = ggml_type_name(node->src[0] != NULL ? node->src[0]->type : node->type);
    for (int i = 0; i < state.kinds_used; i++) {
        if (strcmp(state.kinds[i].name, name) == 0 && state.kinds[i].type == type) {
            state.kinds[i].count++;
            return;
        }
    }
    if (state.kinds_used == MOST_KINDS) {
        state.others++;
        return;
    }
    state.kinds[state.kinds_used++] = (struct kind) {
        .name = name, .type = type, .unsupported = !ggml_backend_dev_supports_op(gpu, node), .count = 1
    };
}

static void count_on_device(ggml_backend_dev_t device) {
    int i = 0;
    while (i < state.devices_used && state.devices[i] != device) {
        i++;
    }
    if (i == state.devices_used && i < MOST_DEVICES) {
        state.devices[state.devices_used++] = device;
        snprintf(state.names[i], NAME_BYTES, "%s: %s", ggml_backend_dev_name(device),
                 ggml_backend_dev_description(device));
    }
    if (i < MOST_DEVICES) {
        state.counts[i]++;
    }
}

static bool is_gpu(ggml_backend_t backend) {
    const ggml_backend_dev_t device = ggml_backend_get_device(backend);
    return device != NULL && ggml_backend_dev_type(device) != GGML_BACKEND_DEVICE_TYPE_CPU;
}

void armload_note_placement(ggml_backend_sched_t sched, struct ggml_cgraph * graph) {
    // The GPUs come first, and the CPU last.
    const ggml_backend_t first = ggml_backend_sched_get_backend(sched, 0);
    if (!is_gpu(first)) {
        return;
    }
    pthread_mutex_lock(&state.lock);
    state.passes++;
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        struct ggml_tensor * node = ggml_graph_node(graph, i);
        if (!computes(node)) {
            continue;
        }
        const ggml_backend_t backend = ggml_backend_sched_get_tensor_backend(sched, node);
        if (backend != NULL && is_gpu(backend)) {
            count_on_device(ggml_backend_get_device(backend));
        } else if (backend != NULL) {
            count_on_cpu(ggml_backend_get_device(first), node);
        }
    }
    pthread_mutex_unlock(&state.lock);
}

__attribute__((destructor)) static void tell(void) {
    if (state.passes == 0) {
        return;
    }
    fprintf(stderr, "\narmload: placement: %" PRId64 " passes\n", state.passes);
    for (int i = 0; i < state.devices_used; i++) {
        fprintf(stderr, "armload: placement: %" PRId64 " on %s\n", state.counts[i], state.names[i]);
    }
    for (int i = 0; i < state.kinds_used; i++) {
        const struct kind * kind = &state.kinds[i];
        fprintf(stderr, "armload: placement: %" PRId64 " on the CPU: %s %s%s\n", kind->count, kind->name, kind->type,
                kind->unsupported ? " unsupported" : "");
    }
    if (state.others > 0) {
        fprintf(stderr, "armload: placement: %" PRId64 " on the CPU: others\n", state.others);
    }
}
