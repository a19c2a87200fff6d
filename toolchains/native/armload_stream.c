// llama.cpp calls these in place of the functions that they are named after: llama-mmap.cpp those of the
// C library, and llama-context.cpp those of the scheduler.

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "armload_stream.h"

#include "armload_experts.h"
#include "armload_memory.h"
#include "armload_pieces.h"
#include "armload_placement.h"
#include "armload_reader.h"
#include "armload_reserve.h"
#include "armload_slots.h"

#include "ggml-backend.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    LEAST_WINDOW_BYTES = 8 << 20,
    MOST_WINDOW_BYTES  = 64 << 20,
    WINDOW_SHARE       = 16, // of the available memory
};

static struct {
    pthread_mutex_t       lock; // held while a graph is computed
    bool                  begun;
    bool                  runs;
    bool                  has_swap;
    struct armload_pieces pieces;
    struct armload_stream state;

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

static bool is_wanted(void) {
    static int wanted = -1;
    if (wanted < 0) {
        const char * value = getenv("ARMLOAD_WEIGHTS");
        wanted             = value != NULL && strcmp(value, "streamed") == 0;
    }
    return wanted;
}

static int64_t requested_bytes(void) {
    const char * text = getenv("ARMLOAD_RESIDENT");
    return text == NULL || text[0] == '\0' ? -1 : strtoll(text, NULL, 10);
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
    return armload_holds_experts(begin, end);
}

static bool start_streaming(void) {
    stream.pass = 0;
    armload_lock_pieces();
    armload_arrange(&stream.pieces);
    const bool done = armload_open_window(&stream.pieces) && armload_start_reader(&stream.pieces, stream.has_swap);
    if (!done) {
        armload_close_window(&stream.pieces);
    }
    armload_unlock_pieces();
    return done;
}

// What the guard gives up between this and the next start is still mapped then, and gets its slots with the others.
static void stop_streaming(void) {
    armload_stop_reader();
    armload_lock_pieces();
    armload_close_window(&stream.pieces);
    armload_unlock_pieces();
}

static const char no_window[] = "this kernel cannot share memory between mappings, or start a thread";

static const char copied[] = "the engine has copied them into memory (repacking, or no mmap)";

// How much of the weights stays: all but experts first, which every token needs.
struct shares {
    int64_t dense_bytes;
    int64_t expert_bytes; // the window of experts included if there is no request
    int64_t window_bytes;
};

// Returns false where not even one layer's experts fit.
static bool share_out(int64_t free_bytes, int64_t wanted_bytes, int64_t dense_bytes, struct shares * shares) {
    const int64_t passing = armload_experts_least_bytes();
    const int64_t window  = shares->window_bytes;
    if (wanted_bytes >= 0) {
        shares->dense_bytes  = within(0, wanted_bytes, dense_bytes);
        shares->expert_bytes = wanted_bytes - shares->dense_bytes;
        return true;
    }
    if (dense_bytes + passing <= free_bytes && passing > 0) {
        shares->dense_bytes  = dense_bytes;
        shares->expert_bytes = free_bytes - dense_bytes;
        return true;
    }
    shares->dense_bytes  = within(0, free_bytes - window - passing, dense_bytes);
    shares->expert_bytes = passing;
    return passing == 0 || free_bytes >= window + passing;
}

static bool begin(struct ggml_cgraph * graph) {
    struct armload_memory memory;
    stream.begun = true;
    const char * const reason = armload_collect_experts(graph);
    if (reason != NULL) {
        return unfit(reason);
    }
    if (!armload_collect(graph, &stream.pieces)) {
        return unfit(copied);
    }
    // A draft model's file stays in memory. Of a token embedding, a token reads one row.
    const int64_t others        = (int64_t) armload_unused_mapped_bytes(holds_weights);
    const int64_t dense_bytes   = sum_of_weights();
    const int64_t used_bytes    = dense_bytes + armload_experts_bytes();
    if (2 * used_bytes < armload_files_bytes() - stream.pieces.by_row_bytes) {
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
    const int64_t free   = memory.available_bytes - armload_plan_reserve(&memory, graph) - others;
    const int64_t wanted = requested_bytes();
    struct shares shares = { .window_bytes = window };
    if (!share_out(free, wanted, dense_bytes, &shares)) {
        return unfit("the experts of one layer do not fit into the free memory");
    }
    armload_cut(&stream.pieces, shares.dense_bytes, window);
    if (!armload_open_experts(shares.expert_bytes, wanted < 0)) {
        return unfit(no_window);
    }
    const struct armload_experts experts = armload_experts();
    stream.state = (struct armload_stream) {
        .requested_bytes = wanted,
        .available_bytes = memory.available_bytes,
        .weights_bytes   = stream.pieces.total_bytes + experts.bytes,
        .resident_bytes  = stream.pieces.resident_bytes + experts.slot_bytes,
        .window_bytes    = window,
    };
    stream.has_swap = memory.has_swap;
    armload_lock_edges(&stream.pieces);
    if (!start_streaming()) {
        armload_close_experts();
        return unfit(no_window);
    }
    if (!armload_start_guard()) {
        stop_streaming();
        armload_close_experts();
        return unfit("no thread could be started");
    }
    return true;
}

static void end(void) {
    if (stream.runs) {
        stream.runs = false;
        armload_stop_guard();
        stop_streaming();
        armload_close_experts();
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
        const bool follow    = armload_experts_follow(node);
        return stream.asked_by_user || follow || node == stream.last_node;
    }
    armload_follow_with_experts(node);
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

static enum ggml_status compute_paced(ggml_backend_sched_t sched, struct ggml_cgraph * graph) {
    armload_make_room_for(graph);
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
    if (!armload_enter_experts(graph)) {
        return not_streamed(sched, graph, "a graph uses experts in another way than the first one");
    }
    stream.graph = graph;
    if (armload_is_truncated(holds_weights)) {
        armload_end_program("\narmload: the model cannot be read: the file was truncated while it was in use\n");
    }
    armload_passed_piece(position(first_piece(used_segment(0))));
    enter_segment(used_segment(0));
    ggml_backend_sched_set_eval_callback(sched, at_node, NULL);
    const enum ggml_status status = ggml_backend_sched_graph_compute_async(sched, graph);
    ggml_backend_sched_synchronize(sched);
    ggml_backend_sched_set_eval_callback(sched, stream.user_callback, stream.user_data);
    leave_segment();
    stream.pass++;
    if (!armload_leave_experts()) {
        end();
        stream.state.unfit = "computing was interrupted";
    }
    return status;
}

enum ggml_status armload_backend_sched_graph_compute_async(ggml_backend_sched_t sched, struct ggml_cgraph * graph) {
#ifdef ARMLOAD_COMPUTES_ON_GPU
    armload_note_placement(sched, graph);
#endif
    if (!is_wanted()) {
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

// A bus error alone would not tell a person that the weights can no longer be read.
static void on_bus_error(int signal, siginfo_t * info, void * context) {
    (void) signal;
    (void) context;
    if (info->si_code == BUS_ADRALN) {
        armload_end_program("\narmload: bus error: misaligned address\n");
    }
    armload_end_for_storage_error();
}

static void explain_storage_errors(void) {
    struct sigaction action = { .sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO };
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

// Populating a file that exceeds the memory reads all of it, and loses most of it again.
void * armload_mmap(void * address, size_t bytes, int protection, int flags, int file, off_t offset) {
    if (!is_wanted()) {
        return mmap(address, bytes, protection, flags, file, offset);
    }
    explain_storage_errors();
    void * mapped = mmap(address, bytes, protection, flags & ~MAP_POPULATE, file, offset);
    if (mapped != MAP_FAILED && offset == 0) {
        armload_add_mapping(mapped, bytes, file);
    }
    return mapped;
}

int armload_posix_madvise(void * address, size_t bytes, int advice) {
    return is_wanted() ? 0 : posix_madvise(address, bytes, advice);
}

int armload_posix_fadvise(int file, off_t offset, off_t bytes, int advice) {
    return is_wanted() ? 0 : posix_fadvise(file, offset, bytes, advice);
}

// The engine unmaps what lies before and after its tensors, and the rest when it frees the model.
int armload_munmap(void * address, size_t bytes) {
    if (is_wanted()) {
        char * begin = address;
        if (holds_weights(begin, begin + bytes)) {
            end();
        }
        armload_remove_mapping(begin, begin + bytes);
    }
    return munmap(address, bytes);
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
        state->experts                 = armload_experts();
    }
    return true;
}

int64_t armload_stream_wait_ns(void) {
    return armload_storage_wait_ns();
}

bool armload_stream_experts(int64_t * used_bytes, int64_t * missed_bytes) {
    if (!stream.runs) {
        return false;
    }
    const struct armload_experts experts = armload_experts();
    *used_bytes                          = experts.used_bytes;
    *missed_bytes                        = experts.missed_bytes;
    return experts.bytes > 0;
}
