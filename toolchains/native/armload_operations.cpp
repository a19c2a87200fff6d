// What a model computes for a token, and for a micro-batch of a prompt: llama.cpp's own graphs, built
// on a context in simulation, for every architecture that it knows. What is not known yet is timed:
// each operation by itself, on data of its types and sizes, through the kernels that the graph would
// use, so that no more than one weight of each kind lies in memory at a time. The graphs of a
// projector's encoder are listed and timed likewise, one for each size of an image's parts.
//
// ARMLOAD_OPERATIONS is "list", or the seconds that the timing may take and the numbers of operations
// in the list.

#include "armload_operations.h"

#include "armload_log.h"

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "llama-ext.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

const char * const VARIABLE = "ARMLOAD_OPERATIONS";
const char * const TIMED    = "ARMLOAD_TIMED";

const uint32_t BATCH_TOKENS   = 64;   // kernels for many columns are at their full speed from here on
const uint32_t SHALLOW_TOKENS = 256;  // the smallest KV cache that llama.cpp makes
const size_t   LEAST_BYTES    = 32u << 20, MOST_BYTES = 256u << 20;
const int      MOST_NODES     = 512;
const int      MOST_TOGETHER  = 64;
const double   SAMPLE_SECONDS = 0.002, ENOUGH_SECONDS = 0.05, LIMIT_SECONDS = 0.3;
const double   SETTING_UP_SHARE = 0.25;  // of the time until the first sample: timing as long costs little
const double   WHOLE_SHARE    = 0.97;
const unsigned SECONDS_AT_MOST = 10;  // of one operation
const int64_t  ROWS_AT_A_TIME = 512;  // a multiple of what any layout of weights interleaves
const int64_t  COLUMNS_AT_A_TIME = 512, QUERIES_AT_A_TIME = 256;  // multiples of the kernels' tiles

using Clock = std::chrono::steady_clock;

double cpu_seconds() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Operand {
    bool                       is_there  = false;
    bool                       is_weight = false;
    bool                       is_cache  = false;  // of a context, which lies in memory between tokens
    ggml_backend_buffer_type_t layout    = nullptr;
    ggml_type                  type      = GGML_TYPE_F32;
    int64_t                    size[GGML_MAX_DIMS]{};
    size_t                     stride[GGML_MAX_DIMS]{};

    bool lies_in_memory() const { return is_weight || is_cache; }
};

struct Operation {
    ggml_op     op;
    int32_t     parameters[GGML_MAX_OP_PARAMS / sizeof(int32_t)];
    int32_t     flags;
    uint32_t    tokens;
    Operand     result;
    Operand     sources[GGML_MAX_SRC];
    std::string key;
    size_t      weights_bytes = 0;  // that one node reads
};

struct Listed {
    uint32_t           tokens, depth;
    std::map<int, int> counts;
    size_t             compute_bytes = 0;  // that its buffers take; of encoders alone
};

Operand operand_of(const ggml_tensor * tensor) {
    Operand found;
    if (tensor == nullptr) {
        return found;
    }
    found.is_there = true;
    found.type     = tensor->type;
    std::copy(tensor->ne, tensor->ne + GGML_MAX_DIMS, found.size);
    std::copy(tensor->nb, tensor->nb + GGML_MAX_DIMS, found.stride);
    const ggml_tensor * whole = tensor->view_src != nullptr ? tensor->view_src : tensor;
    if (whole->buffer != nullptr && whole->op == GGML_OP_NONE) {
        found.is_weight = ggml_backend_buffer_get_usage(whole->buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
        found.is_cache  = !found.is_weight;
        found.layout    = found.is_weight ? ggml_backend_buffer_get_type(whole->buffer) : nullptr;
    }
    return found;
}

std::string described(const Operand & operand, const ggml_tensor * tensor) {
    std::string text = std::string(ggml_type_name(operand.type)) + "[";
    int         last = GGML_MAX_DIMS - 1;
    while (last > 0 && operand.size[last] == 1) {
        --last;
    }
    for (int i = 0; i <= last; ++i) {
        text += (i == 0 ? "" : "x") + std::to_string(operand.size[i]);
    }
    text += "]";
    if (!ggml_is_contiguous(tensor)) {
        for (int i = 0; i <= last; ++i) {
            text += (i == 0 ? "/" : ":") + std::to_string(operand.stride[i]);
        }
    }
    if (operand.is_weight) {
        text += std::string("@") + ggml_backend_buft_name(operand.layout);
    }
    return text + (operand.is_cache ? "@cache" : "");
}

// Of an embedding or a mixture of experts, only what is chosen is read.
size_t read_bytes(const ggml_tensor * node, int number) {
    const ggml_tensor * source = node->src[number];
    if (number == 0 && node->op == GGML_OP_MUL_MAT_ID) {
        return source->nb[2] * static_cast<size_t>(std::min(source->ne[2], ggml_nelements(node->src[2])));
    }
    if (number == 0 && node->op == GGML_OP_GET_ROWS) {
        return ggml_row_size(source->type, source->ne[0]) * static_cast<size_t>(ggml_nelements(node->src[1]));
    }
    if (number == 1 && node->op == GGML_OP_ADD_ID) {
        return source->nb[1] * static_cast<size_t>(std::min(source->ne[1], ggml_nelements(node->src[2])));
    }
    return ggml_nbytes(source);
}

Operation operation_of(const ggml_tensor * node, uint32_t tokens) {
    Operation found;
    found.op     = node->op;
    found.flags  = node->flags;
    found.tokens = tokens;
    static_assert(sizeof(found.parameters) == sizeof(node->op_params), "");
    std::memcpy(found.parameters, node->op_params, sizeof(found.parameters));
    found.result = operand_of(node);
    found.key    = std::string(ggml_op_desc(node)) + " " + described(found.result, node);
    for (int i = 0; i < GGML_MAX_SRC; ++i) {
        found.sources[i] = operand_of(node->src[i]);
        if (found.sources[i].is_there) {
            found.key += " " + described(found.sources[i], node->src[i]);
        }
        if (found.sources[i].is_weight) {
            found.weights_bytes += read_bytes(node, i);
        }
    }
    return found;
}

bool computes(const ggml_tensor * node) {
    switch (node->op) {
        case GGML_OP_NONE:
        case GGML_OP_RESHAPE:
        case GGML_OP_VIEW:
        case GGML_OP_PERMUTE:
        case GGML_OP_TRANSPOSE:
            return false;
        default:
            return !ggml_is_empty(node) && (node->flags & GGML_TENSOR_FLAG_COMPUTE) != 0;
    }
}

struct List {
    std::vector<Listed>        graphs;
    std::vector<Operation>     operations;
    std::map<std::string, int> numbers;

    void add(ggml_cgraph * graph, uint32_t tokens, uint32_t depth) {
        Listed listed{ tokens, depth, {}, 0 };
        for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
            const ggml_tensor * node = ggml_graph_node(graph, i);
            if (!computes(node)) {
                continue;
            }
            Operation  one   = operation_of(node, tokens);
            const auto known = numbers.emplace(one.key, static_cast<int>(operations.size()));
            if (known.second) {
                operations.push_back(std::move(one));
            }
            ++listed.counts[known.first->second];
        }
        graphs.push_back(std::move(listed));
    }
};

[[noreturn]] void give_up(const char * why) {
    armload_finish_log();
    fprintf(stderr, "armload: what is computed is unknown: %s\n", why);
    _exit(1);
}

List list_of(llama_model * model, const llama_context_params & wanted) {
    List           list;
    const uint32_t deepest = wanted.n_ctx != 0 ? wanted.n_ctx : static_cast<uint32_t>(llama_model_n_ctx_train(model));
    uint32_t       before  = 0;
    for (const uint32_t depth : { std::min(SHALLOW_TOKENS, deepest), deepest }) {
        if (depth == before) {
            continue;
        }
        before                      = depth;
        llama_context_params params = wanted;
        params.n_ctx                = depth;
        params.n_seq_max            = 1;
        llama_context * context     = llama_init_from_model(model, params);
        if (context == nullptr) {
            give_up("llama.cpp cannot set up a context with these options");
        }
        for (const uint32_t tokens : { 1u, std::min({ BATCH_TOKENS, depth, llama_n_ubatch(context) }) }) {
            ggml_cgraph * graph = llama_graph_reserve(context, tokens, 1, 1);
            if (graph == nullptr) {
                give_up("its graph cannot be built");
            }
            list.add(graph, tokens, depth);
        }
        llama_free(context);
    }
    return list;
}

void print(const List & list, double load_s, size_t timed_bytes) {
    std::string graphs, operations;
    for (const Listed & each : list.graphs) {
        std::string counts;
        for (const auto & [number, count] : each.counts) {
            counts += (counts.empty() ? "[" : ",[") + std::to_string(number) + "," + std::to_string(count) + "]";
        }
        graphs += (graphs.empty() ? "{\"tokens\":" : ",{\"tokens\":") + std::to_string(each.tokens) +
                  ",\"depth\":" + std::to_string(each.depth) + ",\"compute_bytes\":" + std::to_string(each.compute_bytes) +
                  ",\"counts\":[" + counts + "]}";
    }
    for (const Operation & each : list.operations) {
        size_t moved_bytes = 0;
        for (const Operand & source : each.sources) {
            moved_bytes += source.is_there && !source.is_weight
                               ? ggml_row_size(source.type, source.size[0]) *
                                     static_cast<size_t>(source.size[1] * source.size[2] * source.size[3])
                               : 0;
        }
        operations += (operations.empty() ? "{\"key\":\"" : ",{\"key\":\"") + each.key +
                      "\",\"weights_bytes\":" + std::to_string(each.weights_bytes) +
                      ",\"moved_bytes\":" + std::to_string(moved_bytes) + "}";
    }
    printf("\n%s {\"load_s\":%.6f,\"timed_bytes\":%zu,\"graphs\":[%s],\"operations\":[%s]}\n", VARIABLE, load_s,
           timed_bytes, graphs.c_str(), operations.c_str());
}

// Of the largest cache of the CPU, where Linux says it.
size_t cache_bytes() {
    size_t most = 0;
    for (int index = 0; index < 8; ++index) {
        const std::string path  = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size";
        FILE *            file  = fopen(path.c_str(), "re");
        unsigned          count = 0;
        char              unit  = 'K';
        if (file == nullptr) {
            break;
        }
        if (fscanf(file, "%u%c", &count, &unit) >= 1) {
            most = std::max(most, static_cast<size_t>(count) << (unit == 'M' ? 20 : 10));
        }
        fclose(file);
    }
    return most;
}

// So much is computed with in turn, as a token does with a whole model.
size_t timed_bytes(const List & list) {
    size_t model_bytes = 0;
    for (const auto & [number, count] : list.graphs.front().counts) {
        model_bytes += static_cast<size_t>(count) * list.operations[static_cast<size_t>(number)].weights_bytes;
    }
    return std::min(std::min(std::max(4 * cache_bytes(), LEAST_BYTES), MOST_BYTES), model_bytes);
}

uint64_t random_bits() {
    static uint64_t state = 0x9E3779B97F4A7C15u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

// Numbers of ordinary size: subnormal ones are slow on some CPUs. The bytes of quantised blocks make
// 16-bit scales from 0.008 to 0.12, which are few: some kernels look such numbers up in a table.
void fill(std::vector<uint8_t> & data, ggml_type type) {
    const size_t        most    = std::min<size_t>(data.size(), 1u << 20);
    const ggml_type     floats  = type == GGML_TYPE_F16 || type == GGML_TYPE_BF16 ? type : GGML_TYPE_F32;
    const size_t        width   = ggml_type_size(floats);
    const bool          is_bits = ggml_is_quantized(type);
    for (size_t at = 0; at + width <= most; at += width) {
        uint64_t       bits  = random_bits();
        const float    value = static_cast<float>(bits >> 40) / static_cast<float>(1 << 23) - 1.0f;
        if (is_bits) {
            bits = (bits & 0x0F0F0F0F0F0F0F0Fu) | 0x2020202020202020u;
            std::memcpy(&data[at], &bits, width);
        } else if (floats == GGML_TYPE_F16) {
            const ggml_fp16_t half = ggml_fp32_to_fp16(value);
            std::memcpy(&data[at], &half, width);
        } else if (floats == GGML_TYPE_BF16) {
            const ggml_bf16_t half = ggml_fp32_to_bf16(value);
            std::memcpy(&data[at], &half, width);
        } else {
            std::memcpy(&data[at], &value, width);
        }
    }
    for (size_t at = most; at < data.size(); at += most) {
        std::memcpy(&data[at], data.data(), std::min(most, data.size() - at));
    }
}

bool is_number(ggml_type type) {
    return type == GGML_TYPE_I8 || type == GGML_TYPE_I16 || type == GGML_TYPE_I32 || type == GGML_TYPE_I64;
}

// An operation that is timed, or a part of one that is too large.
class Timing {
  public:
    Timing(const Operation & operation, size_t target_bytes, int threads) :
        operation_(operation),
        target_bytes_(target_bytes),
        threads_(threads) {
        cut();
        const size_t graphs_bytes = ggml_graph_overhead_custom(MOST_TOGETHER, false) +
                                    MOST_NODES * ggml_graph_overhead_custom(1, false);
        ggml_init_params params = {
            ggml_tensor_overhead() * (MOST_NODES + 1) * (GGML_MAX_SRC + 1) + 2 * graphs_bytes, nullptr, true
        };
        context_ = ggml_init(params);
        ggml_threadpool_params pool = ggml_threadpool_params_default(threads);
        pool_                       = ggml_threadpool_new(&pool);
    }

    // Of one node; what it takes to lay the weights out goes to load_s.
    double seconds(double & load_s, bool & is_settled) {
        add_node();
        load_s = load_s_ * scale_;
        std::vector<ggml_cgraph *> graphs{ graph_of(0, 1) };
        const double               once =
            std::max(1e-8, std::min({ compute(graphs[0]).seconds, compute(graphs[0]).seconds,
                                      compute(graphs[0]).seconds }));
        size_t size = 0;
        for (const Operand & source : operation_.sources) {
            size += source.lies_in_memory() ? bytes_of(source) : 0;
        }
        const int all      = size != 0 ? static_cast<int>(std::min<size_t>(target_bytes_ / size, MOST_NODES)) : 1;
        copies_            = std::max(1, std::min(all, static_cast<int>(LIMIT_SECONDS / once)));
        const int together = std::max(1, std::min(static_cast<int>(SAMPLE_SECONDS / once), MOST_TOGETHER));
        const int nodes    = std::max(copies_, together);
        while (static_cast<int>(nodes_.size()) < nodes) {
            add_node();
        }
        graphs.clear();
        for (int from = 0; from + together <= nodes; from += together) {
            graphs.push_back(graph_of(from, together));
        }
        return mean(graphs, is_settled) / together * scale_;
    }

  private:
    static size_t bytes_of(const Operand & operand) {
        size_t bytes = ggml_row_size(operand.type, operand.size[0]);
        for (int i = 1; i < GGML_MAX_DIMS; ++i) {
            bytes *= static_cast<size_t>(operand.size[i]);
        }
        return bytes;
    }

    // Rows and experts are all alike, and so are columns and queries, of which an image has thousands.
    // Small samples are disturbed less often.
    void cut() {
        cut_columns();
        cut_rows();
    }

    void cut_columns() {
        Operand & product = operation_.result;
        Operand & column  = operation_.sources[1];
        Operand & query   = operation_.sources[0];
        Operand & mask    = operation_.sources[3];
        if (operation_.op == GGML_OP_MUL_MAT && column.size[1] > COLUMNS_AT_A_TIME && column.size[2] == 1 &&
            column.size[3] == 1 && product.size[1] == column.size[1]) {
            shorten(column, 1, COLUMNS_AT_A_TIME);
            scale_ *= shorten(product, 1, COLUMNS_AT_A_TIME);
        } else if (operation_.op == GGML_OP_FLASH_ATTN_EXT && query.size[1] > QUERIES_AT_A_TIME &&
                   product.size[2] == query.size[1]) {
            if (mask.is_there) {
                shorten(mask, 1, QUERIES_AT_A_TIME);
            }
            shorten(query, 1, QUERIES_AT_A_TIME);
            scale_ *= shorten(product, 2, QUERIES_AT_A_TIME);
        }
    }

    // Only its beginning is used: what is not packed keeps its distances.
    static double shorten(Operand & operand, int dimension, int64_t size) {
        const double times      = static_cast<double>(operand.size[dimension]) / static_cast<double>(size);
        operand.size[dimension] = size;
        return times;
    }

    void cut_rows() {
        Operand & weight = operation_.sources[0];
        if (!weight.is_weight) {
            return;
        }
        const bool   is_matrix = weight.size[2] == 1 && weight.size[3] == 1;
        const size_t bytes     = bytes_of(weight);
        const size_t fit_bytes = target_bytes_ / (operation_.tokens > 1 ? 64 : 16);
        if (operation_.op == GGML_OP_GET_ROWS && is_matrix) {
            weight.size[1] = std::min(weight.size[1], ROWS_AT_A_TIME);
        } else if (operation_.op == GGML_OP_MUL_MAT && is_matrix && operation_.result.size[0] == weight.size[1]) {
            const int64_t fit  = static_cast<int64_t>(fit_bytes / weight.stride[1]) / ROWS_AT_A_TIME * ROWS_AT_A_TIME;
            const int64_t rows = std::min(std::max(fit, ROWS_AT_A_TIME), weight.size[1]);
            scale_ *= static_cast<double>(weight.size[1]) / static_cast<double>(rows);
            weight.size[1] = operation_.result.size[0] = rows;
        } else if (operation_.op == GGML_OP_MUL_MAT_ID && bytes > target_bytes_) {
            Operand &     ids  = operation_.sources[2];
            const int64_t fit  = static_cast<int64_t>(target_bytes_ / weight.stride[2]);
            const int64_t kept = std::min(std::max(fit, ids.size[0]), weight.size[2]);
            const int64_t now  = std::max(ids.size[1] * kept / weight.size[2], static_cast<int64_t>(1));
            scale_             = static_cast<double>(ids.size[1]) / static_cast<double>(now);
            weight.size[2]     = kept;
            ids.size[1] = operation_.sources[1].size[2] = operation_.result.size[2] = now;
        } else {
            return;
        }
        packed(weight);
        packed(operation_.result);
    }

    static void packed(Operand & operand) {
        operand.stride[0] = ggml_type_size(operand.type);
        operand.stride[1] = ggml_row_size(operand.type, operand.size[0]);
        for (int i = 2; i < GGML_MAX_DIMS; ++i) {
            operand.stride[i] = operand.stride[i - 1] * static_cast<size_t>(operand.size[i - 1]);
        }
    }

    ggml_tensor * tensor_of(const Operand & operand) {
        ggml_tensor * tensor = ggml_new_tensor(context_, operand.type, GGML_MAX_DIMS, operand.size);
        std::copy(operand.stride, operand.stride + GGML_MAX_DIMS, tensor->nb);
        return tensor;
    }

    ggml_tensor * placed(const Operand & operand) {
        ggml_tensor *              tensor = tensor_of(operand);
        ggml_backend_buffer_type_t layout = operand.layout != nullptr ? operand.layout : ggml_backend_cpu_buffer_type();
        ggml_backend_buffer_t      buffer =
            ggml_backend_buft_alloc_buffer(layout, ggml_backend_buft_get_alloc_size(layout, tensor));
        if (buffer == nullptr) {
            _exit(2);
        }
        ggml_backend_buffer_set_usage(buffer, operand.is_weight ? GGML_BACKEND_BUFFER_USAGE_WEIGHTS
                                                                : GGML_BACKEND_BUFFER_USAGE_COMPUTE);
        ggml_backend_tensor_alloc(buffer, tensor, ggml_backend_buffer_get_base(buffer));
        return tensor;
    }

    static bool is_laid_out(const Operand & operand) {
        return operand.layout != nullptr && operand.layout != ggml_backend_cpu_buffer_type();
    }

    // Experts are chosen anew for every token; a row may be any.
    std::vector<uint8_t> chosen(const ggml_tensor * tensor, const Operand & operand, int number) {
        std::vector<uint8_t> data(ggml_nbytes(tensor));
        if (operation_.op != GGML_OP_MUL_MAT_ID || number != 2) {
            return data;
        }
        const int64_t experts = operation_.sources[0].size[2];
        for (int64_t token = 0; token < operand.size[1]; ++token) {
            std::vector<int32_t> all(static_cast<size_t>(experts));
            for (size_t i = 0; i < all.size(); ++i) {
                all[i] = static_cast<int32_t>(i);
            }
            for (int64_t i = 0; i < operand.size[0] && i < experts; ++i) {
                const size_t other = static_cast<size_t>(i) + random_bits() % static_cast<size_t>(experts - i);
                std::swap(all[static_cast<size_t>(i)], all[other]);
                std::memcpy(&data[static_cast<size_t>(token) * operand.stride[1] +
                                  static_cast<size_t>(i) * operand.stride[0]],
                            &all[static_cast<size_t>(i)], sizeof(int32_t));
            }
        }
        return data;
    }

    void add_node() {
        const bool    is_first = nodes_.empty();
        const bool    is_new   = nodes_.size() < static_cast<size_t>(copies_);
        const size_t  like     = is_new ? 0 : nodes_.size() % static_cast<size_t>(copies_);
        ggml_tensor * node     = tensor_of(operation_.result);
        if (is_first) {
            node = placed(operation_.result);
        } else {
            node->data   = nodes_.front()->data;
            node->buffer = nodes_.front()->buffer;
        }
        node->op    = operation_.op;
        node->flags = operation_.flags;
        std::memcpy(node->op_params, operation_.parameters, sizeof(operation_.parameters));
        for (int i = 0; i < GGML_MAX_SRC; ++i) {
            const Operand & source = operation_.sources[i];
            if (!source.is_there) {
                continue;
            }
            if (is_number(source.type)) {
                node->src[i] = placed(source);
                const std::vector<uint8_t> data = chosen(node->src[i], source, i);
                ggml_backend_tensor_set(node->src[i], data.data(), 0, data.size());
            } else if (is_first || (is_new && source.lies_in_memory())) {
                node->src[i] = placed(source);
                std::vector<uint8_t> & data = patterns_[i];
                if (data.empty()) {
                    data.resize(ggml_nbytes(node->src[i]));
                    fill(data, source.type);
                }
                const double start = cpu_seconds();
                ggml_backend_tensor_set(node->src[i], data.data(), 0, data.size());
                load_s_ = is_laid_out(source) ? cpu_seconds() - start : load_s_;
            } else {
                node->src[i] = nodes_[like]->src[i];
            }
        }
        nodes_.push_back(node);
    }

    ggml_cgraph * graph_of(int from, int count) {
        ggml_cgraph * graph = ggml_new_graph_custom(context_, static_cast<size_t>(count), false);
        for (int i = from; i < from + count; ++i) {
            ggml_graph_add_node(graph, nodes_[static_cast<size_t>(i)]);
        }
        plan_ = ggml_graph_plan(graph, threads_, pool_);
        // In a whole graph all threads meet after each node, also where one alone computes it.
        plan_.n_threads = threads_;
        plan_.work_size += static_cast<size_t>(threads_) * 2 * 64;
        work_.resize(std::max(work_.size(), plan_.work_size));
        plan_.work_data = work_.data();
        return graph;
    }

    struct Sample {
        double seconds;
        bool   is_whole;  // no thread was preempted: those that wait for others keep their cores busy
    };

    Sample compute(ggml_cgraph * graph) {
        const double cpu   = cpu_seconds();
        const auto   start = Clock::now();
        if (ggml_graph_compute(graph, &plan_) != GGML_STATUS_SUCCESS) {
            _exit(3);
        }
        const double took   = seconds_since(start);
        const double worked = (cpu_seconds() - cpu) / threads_;
        return { std::min(took, worked), worked > WHOLE_SHARE * took };
    }

    // Settled, unless other programs took the cores from nearly all samples. A token's time is a sum, which
    // slow samples are part of: a core's clock may change within a second, and a neighbour of a virtual one
    // may halve its speed.
    double mean(const std::vector<ggml_cgraph *> & graphs, bool & is_settled) {
        const double enough_s = std::max(ENOUGH_SECONDS, SETTING_UP_SHARE * seconds_since(begun_));
        const double limit_s  = std::max(LIMIT_SECONDS, 2 * enough_s);
        size_t       whole    = 0;
        double       all_s = 0, whole_s = 0, least_s = limit_s;
        for (size_t i = 0; all_s < limit_s && (whole < 8 || all_s < enough_s); ++i) {
            const auto   start = Clock::now();
            const Sample one   = compute(graphs[i % graphs.size()]);
            all_s += seconds_since(start);
            least_s = std::min(least_s, one.seconds);
            whole += one.is_whole ? 1 : 0;
            whole_s += one.is_whole ? one.seconds : 0;
        }
        is_settled = whole >= 3;
        return is_settled ? whole_s / static_cast<double>(whole) : least_s;
    }

    Operation                           operation_;
    const size_t                        target_bytes_;
    const int                           threads_;
    const Clock::time_point             begun_ = Clock::now();
    int                                 copies_ = 1;
    double                              scale_  = 1.0;
    double                              load_s_ = 0.0;
    ggml_context *                      context_;
    ggml_threadpool *                   pool_;
    ggml_cplan                          plan_{};
    std::vector<uint8_t>                work_;
    std::vector<ggml_tensor *>          nodes_;
    std::map<int, std::vector<uint8_t>> patterns_;
};

// In a process of its own: an operation that this CPU cannot compute ends that one alone.
void time_apart(const Operation & operation, int number, size_t target_bytes, int threads) {
    fflush(stdout);
    const pid_t child = fork();
    if (child < 0) {
        give_up("no further process can be started");
    }
    if (child == 0) {
        alarm(SECONDS_AT_MOST);
        double       load_s     = 0;
        bool         is_settled = false;
        const double took_s     = Timing(operation, target_bytes, threads).seconds(load_s, is_settled);
        printf("%s {\"number\":%d,\"time_s\":%.9f,\"load_s\":%.9f,\"is_settled\":%s}\n", TIMED, number, took_s,
               load_s, is_settled ? "true" : "false");
        fflush(stdout);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) {
        printf("%s {\"number\":%d,\"signal\":%d}\n", TIMED, number, WTERMSIG(status));
    }
    fflush(stdout);
}

}  // namespace

bool armload_operations_are_asked() {
    return getenv(VARIABLE) != nullptr;
}

namespace {

[[noreturn]] void answer(const List & list, double load_s, int threads, int prompt_threads) {
    const size_t       bytes = timed_bytes(list);
    const std::string  asked = getenv(VARIABLE);
    std::istringstream words(asked);
    double             limit_s = 0;
    size_t             number  = 0;
    if (asked == "list") {
        print(list, load_s, bytes);
    }
    words >> limit_s;
    const auto start = Clock::now();
    while (seconds_since(start) < limit_s && words >> number && number < list.operations.size()) {
        const Operation & one = list.operations[number];
        time_apart(one, static_cast<int>(number), bytes, one.tokens > 1 ? prompt_threads : threads);
    }
    fflush(stdout);
    _exit(0);
}

struct GraphIsListed {};

List * encoder_list    = nullptr;
int    expected_tokens = 0;

}  // namespace

bool armload_backend_sched_reserve(ggml_backend_sched_t sched, ggml_cgraph * graph) {
    const bool is_reserved = ggml_backend_sched_reserve(sched, graph);
    if (encoder_list == nullptr) {
        return is_reserved;
    }
    encoder_list->add(graph, BATCH_TOKENS, 1);
    for (int i = 0; i < ggml_backend_sched_get_n_backends(sched); ++i) {
        encoder_list->graphs.back().compute_bytes +=
            ggml_backend_sched_get_buffer_size(sched, ggml_backend_sched_get_backend(sched, i));
    }
    // llama.cpp compares them when the graph is computed, and ends.
    const int64_t tokens = ggml_graph_node(graph, -1)->ne[1];
    if (tokens != expected_tokens) {
        armload_finish_log();
        fprintf(stderr, "armload: the encoder's graph gives %" PRId64 " tokens, and llama.cpp expects %d\n", tokens,
                expected_tokens);
        _exit(1);
    }
    throw GraphIsListed();
}

void armload_answer_operations(llama_model * model, const llama_context_params & wanted, double load_s) {
    answer(list_of(model, wanted), load_s, wanted.n_threads, wanted.n_threads_batch);
}

void armload_answer_encoder_operations(const std::vector<int> & tokens, const std::function<void(size_t)> & build,
                                       int threads, double load_s) {
    List list;
    encoder_list = &list;
    for (size_t part = 0; part < tokens.size(); ++part) {
        expected_tokens = tokens[part];
        try {
            build(part);
        } catch (const GraphIsListed &) {
        }
        if (list.graphs.size() != part + 1) {
            give_up("the encoder's graph cannot be built");
        }
    }
    answer(list, load_s, threads, threads);
}
