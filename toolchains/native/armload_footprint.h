// What a program would take of memory, where that is asked for; see armload_footprint.cpp.

#pragma once

#include "llama.h"

#ifdef __cplusplus
extern "C" {
#endif

// Of a program that knows projectors: answers with the header of one, and ends the program.
extern void (*armload_answer_encoder)(const char * path);

struct llama_model *   armload_model_load_from_file(const char * path, struct llama_model_params params);
struct llama_context * armload_init_from_model(struct llama_model * model, struct llama_context_params params);

#ifdef __cplusplus
}
#endif
