// What a model's graphs compute, and how long each operation takes; see armload_operations.cpp.

#pragma once

#include "ggml-backend.h"
#include "llama.h"

#include <cstddef>
#include <functional>
#include <vector>

bool armload_operations_are_asked();

// Answers, and ends the program.
[[noreturn]] void armload_answer_operations(llama_model * model, const llama_context_params & wanted, double load_s);

// The same of an encoder, which is let build the graph of each part of an image, and does not come
// back from it. A graph must give the tokens that llama.cpp expects of the part.
[[noreturn]] void armload_answer_encoder_operations(const std::vector<int> & tokens,
                                                    const std::function<void(size_t)> & build,
                                                    int threads, double load_s);

// What libmtmd calls in the place of ggml's function when an encoder's graph is built.
extern "C" bool armload_backend_sched_reserve(ggml_backend_sched_t sched, ggml_cgraph * graph);
