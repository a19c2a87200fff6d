// What llama.cpp's tools call in the place of llama.cpp's own functions: each forwards to the
// function it is named after and notes the time. The renaming is done by compile definitions,
// so that llama.cpp stays unpatched and no linker feature is needed.

#pragma once

#include "armload_batch.h"
#include "armload_step.h"
#include "llama.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef ARMLOAD_HAS_PROCESS
int32_t armload_process(struct llama_context * ctx, enum llama_process_type type,
                        struct llama_batch_ext * batch);
#endif

#ifdef ARMLOAD_HAS_BACKEND_SAMPLING
llama_token armload_get_sampled_token_ith(struct llama_context * ctx, int32_t i);
#endif

void armload_trace_begin_stages(int32_t threads);

// What comes before the model is a step of its own. Fills in its start; returns whether it is traced.
bool armload_stage_begin(struct armload_step * step, const char * stage);
void armload_stage_end(struct armload_step * step);

int32_t armload_decode(struct llama_context * ctx, struct llama_batch batch);
float * armload_get_logits_ith(struct llama_context * ctx, int32_t i);
float * armload_get_embeddings_seq(struct llama_context * ctx, llama_seq_id seq_id);
void    armload_memory_clear(llama_memory_t memory, bool data);
bool    armload_memory_seq_rm(llama_memory_t memory, llama_seq_id seq_id, llama_pos p0, llama_pos p1);
void    armload_memory_seq_cp(llama_memory_t memory, llama_seq_id from, llama_seq_id to, llama_pos p0,
                              llama_pos p1);
void    armload_free(struct llama_context * ctx);

#ifdef __cplusplus
}
#endif
