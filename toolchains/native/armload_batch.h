// What is in a batch. A llama_batch says it itself; a llama_batch_ext cannot be read, so what is put
// into one is noted on its way.

#pragma once

#include "llama.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// One token of one sequence.
struct armload_entry {
    int32_t      row;
    llama_seq_id sequence;
    llama_pos    position; // -1 if the engine chooses it
    bool         is_output;
    bool         is_shared; // its token has another entry already
    bool         is_media;  // an embedding in the place of a token: of an image or a sound
};

struct armload_batch {
    const void *           batch;
    int32_t                rows;
    int32_t                count;
    int32_t                capacity;
    struct armload_entry * entries;
    struct armload_batch * next;
};

// Valid until the thread's next call.
const struct armload_batch * armload_read_batch(const struct llama_batch * batch);

#ifdef ARMLOAD_HAS_PROCESS
const struct armload_batch * armload_noted_batch(const struct llama_batch_ext * batch);

struct llama_batch_ext * armload_batch_ext_init(struct llama_context * ctx);
void    armload_batch_ext_free(struct llama_batch_ext * batch);
void    armload_batch_ext_clear(struct llama_batch_ext * batch);
int32_t armload_batch_ext_add(struct llama_batch_ext * batch, llama_seq_id seq_id);
int32_t armload_batch_ext_add_token(struct llama_batch_ext * batch, llama_seq_id seq_id, llama_token id);
int32_t armload_batch_ext_add_embd(struct llama_batch_ext * batch, llama_seq_id seq_id, struct llama_embd embd);
bool    armload_batch_ext_add_seq(struct llama_batch_ext * batch, int32_t idx, llama_seq_id seq_id);
bool    armload_batch_ext_set_output_embd(struct llama_batch_ext * batch, int32_t idx, bool value);
bool    armload_batch_ext_set_output_logits(struct llama_batch_ext * batch, int32_t idx, bool value);
bool    armload_batch_ext_set_pos(struct llama_batch_ext * batch, int32_t idx, const llama_pos * pos);
#endif

#ifdef __cplusplus
}
#endif
