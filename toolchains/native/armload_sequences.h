// What each sequence of each context did last: it tells a prompt's tokens from those that were
// sampled, and drafts from both.

#pragma once

#include "armload_batch.h"
#include "armload_step.h"
#include "llama.h"

struct armload_context;

// Makes one when a context is new.
struct armload_context * armload_context_of(struct llama_context * ctx);

// NULL if no context of that memory took a step.
struct armload_context * armload_context_of_memory(llama_memory_t memory);

void armload_each_context(void (*done)(struct armload_context * context));

void armload_forget_context(struct armload_context * context);

// Fills in the step's model and counts, for a batch that the engine has processed.
void armload_count_tokens(struct armload_context * context, const struct armload_batch * batch,
                          struct armload_step * step);

// Keeps what a step that is no part of the run would have recorded as accepted.
void armload_give_back(struct armload_context * context, const struct armload_step * step);

// Drafted tokens accepted since the last step.
int64_t armload_take_accepted(struct armload_context * context);

int32_t armload_model_of(const struct armload_context * context);

void armload_note_read(struct armload_context * context, int32_t row);
void armload_note_removal(struct armload_context * context, llama_seq_id sequence, llama_pos from,
                          llama_pos to);
void armload_note_copy(struct armload_context * context, llama_seq_id from, llama_seq_id to);
