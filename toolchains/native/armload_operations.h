// What a model's graphs compute, and how long each operation takes; see armload_operations.cpp.

#pragma once

#include "llama.h"

bool armload_operations_are_asked();

// Answers, and ends the program.
[[noreturn]] void armload_answer_operations(llama_model * model, const llama_context_params & wanted, double load_s);
