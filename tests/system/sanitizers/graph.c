// Computes a graph whose weights are mapped from a file, as llama.cpp does it and with the same calls, without
// compiling llama.cpp. Of each matrix it computes with a few rows, other ones in each pass, so that many passes meet
// the guard of memory.
//
//   graph FILE EXPERTS PASSES THREADS
//
// With GRAPH_UNLOCKED in the environment, pieces are not locked while streaming starts again.
//
// The file holds matrices of WIDTH times WIDTH floats; or if EXPERTS is not 0, for each layer a router and so many
// matrices of ROWS times WIDTH. Each pass takes another number of columns, and prints a hash of its result.

#define _GNU_SOURCE

#include "armload_stream.h"

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

enum { WIDTH = 512, ROWS = 16, USED_EXPERTS = 2, MOST_NODES = 4096, MOST_COLUMNS = 5 };

// What llama-mmap.cpp and llama-context.cpp call.
void *           armload_mmap(void * address, size_t bytes, int protection, int flags, int file, off_t offset);
int              armload_munmap(void * address, size_t bytes);
enum ggml_status armload_backend_sched_graph_compute_async(ggml_backend_sched_t sched, struct ggml_cgraph * graph);
void             armload_backend_sched_set_eval_callback(ggml_backend_sched_t sched,
                                                         ggml_backend_sched_eval_callback callback, void * user_data);

// Takes so long that the guard, which looks every ten milliseconds, looks while streaming starts again: a file of
// gigabytes has as many pieces.
void * __real_mmap(void * address, size_t bytes, int protection, int flags, int file, off_t offset);
void * __wrap_mmap(void * address, size_t bytes, int protection, int flags, int file, off_t offset);
void * __wrap_mmap(void * address, size_t bytes, int protection, int flags, int file, off_t offset) {
    if ((flags & MAP_FIXED) != 0) {
        nanosleep(&(struct timespec) { .tv_nsec = 100 * 1000 }, NULL);
    }
    return __real_mmap(address, bytes, protection, flags, file, offset);
}

// Without them the guard may release pieces while these are arranged anew.
void __real_armload_lock_pieces(void);
void __wrap_armload_lock_pieces(void);
void __real_armload_unlock_pieces(void);
void __wrap_armload_unlock_pieces(void);
void __wrap_armload_lock_pieces(void) {
    if (getenv("GRAPH_UNLOCKED") == NULL) {
        __real_armload_lock_pieces();
    }
}
void __wrap_armload_unlock_pieces(void) {
    if (getenv("GRAPH_UNLOCKED") == NULL) {
        __real_armload_unlock_pieces();
    }
}

static struct ggml_context * new_context(void) {
    return ggml_init((struct ggml_init_params) {
        .mem_size = MOST_NODES * ggml_tensor_overhead() + ggml_graph_overhead_custom(MOST_NODES, false),
        .no_alloc = true,
    });
}

struct layer {
    struct ggml_tensor * matrix; // the router, if there are experts
    struct ggml_tensor * experts;
};

static struct ggml_tensor * result_of(struct ggml_context * context, const struct layer * layer,
                                      struct ggml_tensor * input, int first_row) {
    struct ggml_tensor * matrix = layer->matrix;
    if (layer->experts == NULL) {
        return ggml_mul_mat(
            context, ggml_view_2d(context, matrix, WIDTH, ROWS, matrix->nb[1], (size_t) first_row * matrix->nb[1]),
            input);
    }
    struct ggml_tensor * chosen = ggml_argsort_top_k(context, ggml_mul_mat(context, matrix, input), USED_EXPERTS);
    struct ggml_tensor * each   = ggml_mul_mat_id(
        context, layer->experts, ggml_reshape_3d(context, input, WIDTH, 1, input->ne[1]), chosen);
    struct ggml_tensor * one = ggml_view_2d(context, each, ROWS, input->ne[1], each->nb[2], 0);
    return ggml_add(context, one, ggml_view_2d(context, each, ROWS, input->ne[1], each->nb[2], each->nb[1]));
}

static void pass(ggml_backend_sched_t sched, const struct layer * layers, int layer_count, int number) {
    static float          values[WIDTH * MOST_COLUMNS];
    struct ggml_context * context = new_context();
    struct ggml_cgraph *  graph   = ggml_new_graph_custom(context, MOST_NODES, false);
    const int             columns = 1 + number % MOST_COLUMNS;
    struct ggml_tensor *  input   = ggml_new_tensor_2d(context, GGML_TYPE_F32, WIDTH, columns);
    ggml_set_input(input);
    struct ggml_tensor * result = input;
    for (int layer = 0; layer < layer_count; layer++) {
        const int first_row = (layer * 7 + number * 113) % (WIDTH - ROWS);
        result = ggml_repeat(context, result_of(context, &layers[layer], result, first_row), input);
        result = ggml_rms_norm(context, result, 1e-5f);
    }
    ggml_set_output(result);
    ggml_build_forward_expand(graph, result);
    ggml_backend_sched_reset(sched);
    armload_backend_sched_set_eval_callback(sched, NULL, NULL);
    if (!ggml_backend_sched_alloc_graph(sched, graph)) {
        abort();
    }
    for (int index = 0; index < WIDTH * columns; index++) {
        values[index] = (float) ((index * 37 + number * 11) % 101) / 50 - 1;
    }
    ggml_backend_tensor_set(input, values, 0, ggml_nbytes(input));
    if (armload_backend_sched_graph_compute_async(sched, graph) != GGML_STATUS_SUCCESS) {
        abort();
    }
    ggml_backend_sched_synchronize(sched);
    ggml_backend_tensor_get(result, values, 0, ggml_nbytes(result));
    uint64_t hash = 0;
    for (int index = 0; index < WIDTH * columns; index++) {
        uint32_t bits;
        memcpy(&bits, &values[index], sizeof(bits));
        hash = (hash ^ bits) * UINT64_C(0x100000001b3);
    }
    printf("%d %016" PRIx64 "\n", number, hash);
    fflush(stdout);
    ggml_free(context);
}

int main(int count, char ** words) {
    struct stat status;
    const int   file = count == 5 ? open(words[1], O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0 || fstat(file, &status) != 0) {
        fputs("usage: graph FILE EXPERTS PASSES THREADS\n", stderr);
        return 2;
    }
    const size_t bytes   = (size_t) status.st_size;
    const int    experts = atoi(words[2]);
    const size_t each    = sizeof(float) * WIDTH * (size_t) (experts > 0 ? (1 + ROWS) * experts : WIDTH);
    const int    layer_count  = (int) (bytes / each);
    char * const mapped  = armload_mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) {
        perror(words[1]);
        return 1;
    }
    ggml_backend_t backend = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(backend, atoi(words[4]));
    ggml_backend_sched_t  sched   = ggml_backend_sched_new(&backend, NULL, 1, MOST_NODES, false, false);
    ggml_backend_buffer_t buffer  = ggml_backend_cpu_buffer_from_ptr(mapped, bytes);
    struct ggml_context * context = new_context();
    struct layer *        layers  = calloc((size_t) layer_count, sizeof(*layers));
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    for (int layer = 0; layer < layer_count; layer++) {
        char * const begin   = mapped + (size_t) layer * each;
        layers[layer].matrix = ggml_new_tensor_2d(context, GGML_TYPE_F32, WIDTH, experts > 0 ? experts : WIDTH);
        ggml_backend_tensor_alloc(buffer, layers[layer].matrix, begin);
        if (experts > 0) {
            layers[layer].experts = ggml_new_tensor_3d(context, GGML_TYPE_F32, WIDTH, ROWS, experts);
            ggml_backend_tensor_alloc(buffer, layers[layer].experts, begin + ggml_nbytes(layers[layer].matrix));
        }
    }
    for (int number = 0; number < atoi(words[3]); number++) {
        pass(sched, layers, layer_count, number);
    }
    struct armload_stream state;
    if (armload_stream_state(&state)) {
        fprintf(stderr, "unfit=%s released=%" PRId64 " slots=%" PRId64 "\n", state.unfit == NULL ? "" : state.unfit,
                state.released_bytes, state.experts.slot_bytes);
    }
    armload_munmap(mapped, bytes);
    ggml_backend_buffer_free(buffer);
    ggml_backend_sched_free(sched);
    ggml_backend_free(backend);
    ggml_free(context);
    free(layers);
    return 0;
}
