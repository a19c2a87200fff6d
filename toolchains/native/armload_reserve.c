#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "armload_reserve.h"

#include "armload_allocation.h"
#include "armload_reader.h"
#include "armload_slots.h"

#include "ggml-backend.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
    LEAST_RESERVE_BYTES = 24 << 20,
    RESERVE_SHARE       = 20, // of all memory
    LOOK_EVERY_NS       = 10 * 1000 * 1000,
    LOOKS_AHEAD         = 4,
};

static struct {
    int64_t   bytes;
    int64_t   graph_bytes; // of the largest graph so far
    pthread_t guard;
    bool      guard_stops;
} reserve;

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

// Bytes of the engine's compute buffers that computing this graph uses, in whole pages. The buffers are as
// large as the largest graph might need, and what no graph has used takes no memory yet.
static int64_t graph_bytes_of(struct ggml_cgraph * graph) {
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

int64_t armload_plan_reserve(const struct armload_memory * memory, struct ggml_cgraph * graph) {
    const int64_t share = memory->total_bytes / RESERVE_SHARE;
    reserve.bytes       = share > LEAST_RESERVE_BYTES ? share : LEAST_RESERVE_BYTES;
    reserve.graph_bytes = graph_bytes_of(graph);
    return reserve.bytes + reserve.graph_bytes;
}

// What this process has. Locked memory fills up as it is read, so what is held tells only beforehand; Linux
// before 4.5 tells nothing else.
static int64_t own_bytes(void) {
    const int64_t bytes = armload_anonymous_bytes();
    if (bytes > 0) {
        return bytes;
    }
    const struct armload_held held = armload_held();
    int64_t                   sum  = 0;
    for (int place = ARMLOAD_LOCKED; place < ARMLOAD_PLACES; place++) {
        sum += held.bytes[place];
    }
    return sum;
}

// Gives memory back where little of the reserve is left or will soon be: as much as is missing of it.
static bool keep_reserve(int64_t available_bytes, int64_t available_soon_bytes) {
    if (available_bytes >= reserve.bytes / 2 && available_soon_bytes >= reserve.bytes / 4) {
        return false;
    }
    armload_release_held(armload_release_experts(reserve.bytes - available_soon_bytes));
    return true;
}

// Gives memory back before the kernel kills somebody: also what others will have taken before it is back.
// A process that starts takes a few MB once; only what is taken in two looks running is expected to go on.
static void * guard(void * unused) {
    (void) unused;
    int64_t before       = 0; // without what this process has
    int64_t taken_before = 0;
    while (!__atomic_load_n(&reserve.guard_stops, __ATOMIC_ACQUIRE)) {
        struct armload_memory memory;
        if (armload_read_memory(&memory)) {
            const int64_t others   = memory.available_bytes + own_bytes();
            const int64_t taken    = before > others ? before - others : 0;
            const int64_t expected = taken < taken_before ? taken : taken_before;
            const int64_t soon     = memory.available_bytes - LOOKS_AHEAD * expected;
            // What is given back counts as available only some time later.
            before       = keep_reserve(memory.available_bytes, soon) ? 0 : others;
            taken_before = taken;
        }
        nanosleep(&(struct timespec) { .tv_nsec = LOOK_EVERY_NS }, NULL);
    }
    return NULL;
}

bool armload_start_guard(void) {
    reserve.guard_stops = false;
    if (pthread_create(&reserve.guard, NULL, guard, NULL) != 0) {
        return false;
    }
    // Where that is permitted, it does not wait for the threads that compute.
    pthread_setschedparam(reserve.guard, SCHED_FIFO, &(struct sched_param) { .sched_priority = 1 });
    return true;
}

void armload_stop_guard(void) {
    __atomic_store_n(&reserve.guard_stops, true, __ATOMIC_RELEASE);
    pthread_join(reserve.guard, NULL);
}

void armload_make_room_for(struct ggml_cgraph * graph) {
    const int64_t         bytes = graph_bytes_of(graph);
    const int64_t         more  = bytes - reserve.graph_bytes;
    struct armload_memory memory;
    if (more <= 0) {
        return;
    }
    reserve.graph_bytes = bytes;
    if (armload_read_memory(&memory)) {
        const int64_t left = memory.available_bytes - more;
        keep_reserve(left, left);
    }
}
