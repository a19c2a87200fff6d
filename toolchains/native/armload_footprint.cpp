// What a program would take of memory with the options it was started with. No weights are loaded:
// llama.cpp itself makes the model and its context in simulation, for every architecture that it
// knows, and says what it would have allocated. Only a graph's buffers are reserved, and not touched.
//
// ARMLOAD_FOOTPRINT holds the size of the model's file, whose header comes on standard input, and,
// after a comma, the tokens of the largest micro-batch that will be computed. With the value
// "loaded" the model that the options name is loaded, and what was allocated is reported.

#include "armload_footprint.h"

#include "armload_log.h"
#include "armload_operations.h"

#include "ggml-cpu.h"
#include "llama-ext.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

static const char * const VARIABLE = "ARMLOAD_FOOTPRINT";
static const char * const ENCODER  = "ARMLOAD_ENCODER";  // the header is a projector's

namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point load_start;

[[noreturn]] void give_up(const char * why) {
    armload_finish_log();
    fprintf(stderr, "armload: the memory that is needed is unknown: %s\n", why);
    _exit(1);
}

bool is_simulated(const char * asked) {
    return strcmp(asked, "loaded") != 0;
}

// A file in memory with the header, and a hole where the weights would be.
std::string file_of_header(const char * asked) {
    const int file = memfd_create("header", MFD_CLOEXEC);
    if (file < 0) {
        give_up("this kernel has no files in memory");
    }
    char    chunk[1 << 16];
    ssize_t count;
    while ((count = read(STDIN_FILENO, chunk, sizeof(chunk))) != 0) {
        if (count < 0 && errno != EINTR) {
            give_up("the header cannot be read");
        }
        if (count > 0 && write(file, chunk, static_cast<size_t>(count)) != count) {
            give_up("the header does not fit into memory");
        }
    }
    if (ftruncate(file, static_cast<off_t>(strtoll(asked, nullptr, 10))) != 0) {
        give_up("the file's size is refused");
    }
    return "/proc/self/fd/" + std::to_string(file);
}

int64_t own_bytes() {
    FILE * file = fopen("/proc/self/statm", "re");
    long   size = 0, resident = 0;
    if (file != nullptr) {
        if (fscanf(file, "%ld %ld", &size, &resident) != 2) {
            resident = 0;
        }
        fclose(file);
    }
    return static_cast<int64_t>(resident) * sysconf(_SC_PAGESIZE);
}

size_t compute_bytes(llama_context * context) {
    size_t sum = 0;
    for (const auto & [type, part] : llama_get_memory_breakdown(context)) {
        sum += part.compute;
    }
    return sum;
}

// The scratch memory that the threads share while they compute a graph.
size_t work_bytes(llama_context * context, const llama_context_params & wanted) {
    const uint32_t sequences = llama_n_seq_max(context);
    const uint32_t tokens    = std::min(llama_n_ctx(context), llama_n_ubatch(context));
    ggml_cgraph *  graph     = llama_graph_reserve(context, tokens, sequences, sequences);
    if (graph == nullptr) {
        give_up("its graph cannot be built");
    }
    return ggml_graph_plan(graph, std::max(wanted.n_threads, wanted.n_threads_batch), nullptr).work_size;
}

void report(llama_model * model, const llama_context_params & wanted, const char * asked) {
    const int64_t   own     = own_bytes();
    llama_context * context = llama_init_from_model(model, wanted);
    if (context == nullptr) {
        give_up("llama.cpp cannot set up a context with these options");
    }
    std::string buffers;
    for (const auto & [type, part] : llama_get_memory_breakdown(context)) {
        buffers += (buffers.empty() ? "{\"type\":\"" : ",{\"type\":\"") + std::string(ggml_backend_buft_name(type)) +
                   "\",\"weights_bytes\":" + std::to_string(part.model) + ",\"context_bytes\":" +
                   std::to_string(part.context) + ",\"compute_bytes\":" + std::to_string(part.compute) + "}";
    }
    // The buffer is reserved for the logits of every token of a full micro-batch.
    llama_context_params touched  = wanted;
    const char *         tokens   = strchr(asked, ',');
    touched.n_ubatch              = tokens == nullptr ? wanted.n_ubatch
                                                      : std::min(wanted.n_ubatch, static_cast<uint32_t>(atoi(tokens + 1)));
    touched.n_outputs_max         = std::max(wanted.n_seq_max, 1u);
    touched.n_outputs_max_per_seq = 1;
    llama_context * usual         = is_simulated(asked) ? llama_init_from_model(model, touched) : context;
    if (usual == nullptr) {
        give_up("llama.cpp cannot set up a second context");
    }
    const size_t output_bytes = sizeof(float) * static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model))) *
                                touched.n_outputs_max;
    printf("\n%s {\"buffers\":[%s],\"touched_compute_bytes\":%zu,\"work_bytes\":%zu,\"output_bytes\":%zu,"
           "\"own_bytes\":%" PRId64 ",\"context_tokens\":%u,\"sequences\":%u}\n",
           VARIABLE, buffers.c_str(), compute_bytes(usual), work_bytes(usual, wanted), output_bytes, own,
           llama_n_ctx(context), llama_n_seq_max(context));
    fflush(stdout);
}

}  // namespace

void (*armload_answer_encoder)(const char * path) = nullptr;

llama_model * armload_model_load_from_file(const char * path, llama_model_params params) {
    const char * asked = getenv(VARIABLE);
    if (asked == nullptr || !is_simulated(asked)) {
        return llama_model_load_from_file(path, params);
    }
    if (armload_answer_encoder != nullptr && getenv(ENCODER) != nullptr) {
        armload_answer_encoder(file_of_header(asked).c_str());
    }
    params.no_alloc          = true;
    params.load_mode         = LLAMA_LOAD_MODE_NONE;
    params.progress_callback = nullptr;
    load_start               = Clock::now();
    return llama_model_load_from_file(file_of_header(asked).c_str(), params);
}

llama_context * armload_init_from_model(llama_model * model, llama_context_params params) {
    const char * asked = getenv(VARIABLE);
    if (asked == nullptr) {
        return llama_init_from_model(model, params);
    }
    if (armload_operations_are_asked()) {
        armload_answer_operations(model, params, std::chrono::duration<double>(Clock::now() - load_start).count());
    }
    report(model, params, asked);
    // What follows would need the weights.
    _exit(0);
}
