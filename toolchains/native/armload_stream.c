// llama-context.cpp calls these in place of the scheduler's functions that they are named after.

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "armload_stream.h"

#include "armload_graph.h"
#include "armload_mapping.h"
#include "armload_memory.h"
#include "armload_pieces.h"
#include "armload_reader.h"
#include "armload_storage_error.h"
#include "armload_window.h"

#include "ggml-backend.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    LEAST_WINDOW_BYTES  = 8 << 20,
    MOST_WINDOW_BYTES   = 64 << 20,
    WINDOW_SHARE        = 16, // of the available memory
    LEAST_RESERVE_BYTES = 24 << 20,
    RESERVE_SHARE       = 20, // of all memory
    LOOK_EVERY_NS       = 10 * 1000 * 1000,
    LOOKS_AHEAD         = 4,
};

static struct {
    pthread_mutex_t       lock; // held while a graph is computed
    bool                  begun;
    bool                  runs;
    bool                  has_swap;
    struct armload_pieces pieces;
    struct armload_stream state;
    int64_t               reserve_bytes;
    int64_t               graph_bytes; // of the largest graph so far
    pthread_t             guard;
    bool                  guard_stops;

    // of the graph under way
    struct ggml_cgraph *          graph;
    uint64_t                      pass; // since the reader was started
    int                           segment;
    int                           next_segment; // that the graph uses; segment_count at the end
    struct ggml_tensor *          last_node;    // before it
    bool                          asked_by_user;
    ggml_backend_sched_eval_callback user_callback;
    void *                        user_data;
} stream = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int64_t within(int64_t low, int64_t value, int64_t high) {
    return value < low ? low : value > high ? high : value;
}

static int64_t requested_bytes(void) {
    const char * text = getenv("ARMLOAD_RESIDENT");
    return text == NULL || text[0] == '\0' ? -1 : strtoll(text, NULL, 10);
}

static int64_t held_bytes(void) {
    const struct armload_held held  = armload_held();
    int64_t                   bytes = 0;
    for (int place = ARMLOAD_LOCKED; place < ARMLOAD_PLACES; place++) {
        bytes += held.bytes[place];
    }
    return bytes;
}

// Gives memory back where little of the reserve is left or will soon be: as much as is missing of it.
static bool keep_reserve(int64_t available_bytes, int64_t available_soon_bytes) {
    if (available_bytes >= stream.reserve_bytes / 2 && available_soon_bytes >= stream.reserve_bytes / 4) {
        return false;
    }
    armload_release_held(stream.reserve_bytes - available_soon_bytes);
    return true;
}

// Gives memory back before the kernel kills somebody: also what others will have taken before it is back.
// A process that starts takes a few MB once; only what is taken in two looks running is expected to go on.
static void * guard(void * unused) {
    (void) unused;
    int64_t before       = 0; // without what is held
    int64_t taken_before = 0;
    while (!__atomic_load_n(&stream.guard_stops, __ATOMIC_ACQUIRE)) {
        struct armload_memory memory;
        if (armload_read_memory(&memory)) {
            const int64_t others = memory.available_bytes + held_bytes();
            const int64_t taken  = before > others ? before - others : 0;
            const int64_t soon   = memory.available_bytes - LOOKS_AHEAD * within(0, taken, taken_before);
            // What is given back counts as available only some time later.
            before       = keep_reserve(memory.available_bytes, soon) ? 0 : others;
            taken_before = taken;
        }
        nanosleep(&(struct timespec) { .tv_nsec = LOOK_EVERY_NS }, NULL);
    }
    return NULL;
}

static bool start_guard(void) {
    stream.guard_stops = false;
    if (pthread_create(&stream.guard, NULL, guard, NULL) != 0) {
        return false;
    }
    // Where that is permitted, it does not wait for the threads that compute.
    pthread_setschedparam(stream.guard, SCHED_FIFO, &(struct sched_param) { .sched_priority = 1 });
    return true;
}

static bool unfit(const char * reason) {
    stream.state = (struct armload_stream) { .unfit = reason, .requested_bytes = requested_bytes() };
    armload_free_pieces(&stream.pieces);
    fprintf(stderr, "armload: weights are not streamed: %s\n", reason);
    return false;
}

static int64_t sum_of_weights(void) {
    int64_t bytes = 0;
    for (int index = 0; index < stream.pieces.tensor_count; index++) {
        bytes += (int64_t) stream.pieces.tensors[index].bytes;
    }
    return bytes;
}

static bool holds_weights(const char * begin, const char * end) {
    for (int index = 0; index < stream.pieces.tensor_count; index++) {
        const char * weights = stream.pieces.tensors[index].begin;
        if (weights >= begin && weights < end) {
            return true;
        }
    }
    return false;
}

static bool start_streaming(void) {
    stream.pass = 0;
    armload_arrange(&stream.pieces);
    if (armload_open_window(&stream.pieces) && armload_start_reader(&stream.pieces, stream.has_swap)) {
        return true;
    }
    armload_close_window(&stream.pieces);
    return false;
}

static void stop_streaming(void) {
    armload_stop_reader();
    armload_close_window(&stream.pieces);
}

static const char no_window[] = "this kernel cannot share memory between mappings, or start a thread";

static const char copied[] = "the engine has copied them into memory (repacking, or no mmap)";

static bool begin(struct ggml_cgraph * graph) {
    struct armload_memory memory;
    stream.begun = true;
    switch (armload_collect(graph, &stream.pieces)) {
        case ARMLOAD_UNFIT_EXPERTS:
            return unfit("in a mixture of experts, a token decides which weights are read");
        case ARMLOAD_UNFIT_UNMAPPED:
            return unfit(copied);
        case ARMLOAD_FIT:
            break;
    }
    // A draft model's file stays in memory. Of a token embedding, a token reads one row.
    const int64_t others        = (int64_t) armload_unused_mapped_bytes(holds_weights);
    const int64_t weights_bytes = sum_of_weights();
    if (2 * weights_bytes < (int64_t) armload_mapped_bytes()) {
        if (others == 0) {
            return unfit(copied);
        }
        armload_free_pieces(&stream.pieces); // a draft model's graph: it stays, and another is streamed
        stream.begun = false;
        return false;
    }
    if (!armload_read_memory(&memory)) {
        return unfit("this kernel does not report the available memory");
    }
    const int64_t window = within(LEAST_WINDOW_BYTES, memory.available_bytes / WINDOW_SHARE, MOST_WINDOW_BYTES);
    stream.reserve_bytes = within(LEAST_RESERVE_BYTES, memory.total_bytes / RESERVE_SHARE, INT64_MAX);
    stream.graph_bytes   = armload_graph_bytes(graph);
    const int64_t fits   = memory.available_bytes - stream.reserve_bytes - stream.graph_bytes - window - others;
    const int64_t wanted = requested_bytes();
    armload_cut(&stream.pieces, within(0, wanted < 0 ? fits : wanted, weights_bytes), window);
    stream.state = (struct armload_stream) {
        .requested_bytes = wanted,
        .available_bytes = memory.available_bytes,
        .weights_bytes   = stream.pieces.total_bytes,
        .resident_bytes  = stream.pieces.resident_bytes,
        .window_bytes    = window,
    };
    stream.has_swap = memory.has_swap;
    armload_lock_edges(&stream.pieces);
    if (!start_streaming()) {
        return unfit(no_window);
    }
    if (!start_guard()) {
        stop_streaming();
        return unfit("no thread could be started");
    }
    return true;
}

static void end(void) {
    if (stream.runs) {
        stream.runs = false;
        __atomic_store_n(&stream.guard_stops, true, __ATOMIC_RELEASE);
        pthread_join(stream.guard, NULL);
        stop_streaming();
    }
}

static uint64_t position(size_t piece) {
    return stream.pass * stream.pieces.count + piece;
}

static int used_segment(int from) {
    while (from < stream.pieces.segment_count && stream.pieces.segments[from].node < 0) {
        from++;
    }
    return from;
}

// Waits for a segment, and finds the node before the next one.
static void enter_segment(int segment) {
    armload_await_piece(position(stream.pieces.segments[segment].end_piece));
    stream.segment      = segment;
    stream.next_segment = used_segment(segment + 1);
    stream.last_node    = stream.next_segment == stream.pieces.segment_count
        ? NULL
        : ggml_graph_node(stream.graph, stream.pieces.segments[stream.next_segment].node - 1);
}

static size_t first_piece(int segment) {
    return segment == 0 ? 0 : stream.pieces.segments[segment - 1].end_piece;
}

static void leave_segment(void) {
    const size_t end = first_piece(stream.next_segment);
    armload_hide_window(&stream.pieces, first_piece(stream.segment), end);
    armload_passed_piece(position(end));
}

static bool at_node(struct ggml_tensor * node, bool ask, void * unused) {
    (void) unused;
    if (ask) {
        stream.asked_by_user = stream.user_callback != NULL && stream.user_callback(node, true, stream.user_data);
        return stream.asked_by_user || node == stream.last_node;
    }
    if (node == stream.last_node) {
        leave_segment();
        enter_segment(stream.next_segment);
    }
    return !stream.asked_by_user || stream.user_callback(node, false, stream.user_data);
}

static enum ggml_status not_streamed(ggml_backend_sched_t sched, struct ggml_cgraph * graph, const char * reason) {
    end();
    stream.state.unfit = reason;
    return ggml_backend_sched_graph_compute_async(sched, graph);
}

// A longer prompt than any before takes more memory, at once: the guard might come too late.
static void make_room_for(struct ggml_cgraph * graph) {
    const int64_t         bytes = armload_graph_bytes(graph);
    const int64_t         more  = bytes - stream.graph_bytes;
    struct armload_memory memory;
    if (more <= 0) {
        return;
    }
    stream.graph_bytes = bytes;
    if (armload_read_memory(&memory)) {
        const int64_t left = memory.available_bytes - more;
        keep_reserve(left, left);
    }
}

static enum ggml_status compute_paced(ggml_backend_sched_t sched, struct ggml_cgraph * graph) {
    make_room_for(graph);
    if (armload_reader_lacks_slots()) {
        stop_streaming();
        if (!start_streaming()) {
            return not_streamed(sched, graph, no_window);
        }
    }
    switch (armload_locate(graph, &stream.pieces)) {
        case ARMLOAD_OTHER_WEIGHTS:
            return ggml_backend_sched_graph_compute_async(sched, graph);
        case ARMLOAD_OUT_OF_ORDER:
            return not_streamed(sched, graph, "a graph uses them in another order than the first one");
        case ARMLOAD_IN_ORDER:
            break;
    }
    stream.graph = graph;
    armload_check_sizes(&stream.pieces);
    armload_passed_piece(position(first_piece(used_segment(0))));
    enter_segment(used_segment(0));
    ggml_backend_sched_set_eval_callback(sched, at_node, NULL);
    const enum ggml_status status = ggml_backend_sched_graph_compute_async(sched, graph);
    ggml_backend_sched_synchronize(sched);
    ggml_backend_sched_set_eval_callback(sched, stream.user_callback, stream.user_data);
    leave_segment();
    stream.pass++;
    return status;
}

enum ggml_status armload_backend_sched_graph_compute_async(ggml_backend_sched_t sched, struct ggml_cgraph * graph) {
    if (!armload_streams()) {
        return ggml_backend_sched_graph_compute_async(sched, graph);
    }
    pthread_mutex_lock(&stream.lock);
    if (!stream.begun) {
        stream.runs = begin(graph);
    }
    const enum ggml_status status = stream.runs ? compute_paced(sched, graph)
                                                : ggml_backend_sched_graph_compute_async(sched, graph);
    pthread_mutex_unlock(&stream.lock);
    return status;
}

// The engine sets its own callback before each graph that it builds.
void armload_backend_sched_set_eval_callback(ggml_backend_sched_t sched, ggml_backend_sched_eval_callback callback,
                                             void * user_data) {
    stream.user_callback = callback;
    stream.user_data     = user_data;
    ggml_backend_sched_set_eval_callback(sched, callback, user_data);
}

bool armload_stream_state(struct armload_stream * state) {
    if (!stream.begun) {
        return false;
    }
    *state = stream.state;
    if (stream.runs) {
        const struct armload_held held = armload_held();
        state->locked_bytes            = held.bytes[ARMLOAD_LOCKED];
        state->anonymous_bytes         = held.bytes[ARMLOAD_ANONYMOUS];
        state->cached_bytes            = held.bytes[ARMLOAD_CACHED];
        state->released_bytes          = held.released_bytes;
        state->lock_refused            = held.refused;
        state->ways                    = armload_reader_ways();
    }
    return true;
}

int64_t armload_stream_wait_ns(void) {
    return armload_storage_wait_ns();
}

void armload_stream_forget(const char * from, const char * to) {
    if (holds_weights(from, to)) {
        end();
    }
}
