#include "armload_trace.h"

#include "armload_log.h"
#include "armload_sequences.h"
#include "armload_step.h"
#include "armload_trace_file.h"

#include <pthread.h>
#include <stddef.h>

// A step is held back until something shows that its result is used: logits are read, or another
// step follows, an embedding is read, or the program ends. A step whose memory is cleared before that was a warm-up or a
// probe of the model, and is no part of the run.
static struct {
    pthread_mutex_t          lock;
    struct armload_context * held; // took the step held back; NULL if none is
    struct armload_step      step;
} state = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void release(void) {
    if (state.held != NULL) {
        state.held = NULL;
        armload_trace_write(&state.step);
    }
}

static bool before(struct llama_context * ctx, struct armload_step * step) {
    if (!armload_trace_wanted()) {
        return false;
    }
    pthread_mutex_lock(&state.lock);
    armload_trace_begin(llama_n_threads(ctx));
    release();
    pthread_mutex_unlock(&state.lock);
    llama_synchronize(ctx);
    step->start = armload_count_at_start();
    return true;
}

static void after(struct llama_context * ctx, const struct armload_batch * batch,
                  struct armload_step * step) {
    llama_synchronize(ctx);
    step->end = armload_count_at_end();
    pthread_mutex_lock(&state.lock);
    release();
    state.held = armload_context_of(ctx);
    armload_count_tokens(state.held, batch, step);
    state.step = *step;
    pthread_mutex_unlock(&state.lock);
}

void armload_trace_begin_stages(int32_t threads) {
    if (armload_trace_wanted()) {
        pthread_mutex_lock(&state.lock);
        armload_trace_begin(threads);
        pthread_mutex_unlock(&state.lock);
    }
}

bool armload_stage_begin(struct armload_step * step, const char * stage) {
    *step = (struct armload_step) { .stage = stage };
    if (!armload_trace_wanted()) {
        return false;
    }
    step->start = armload_count_at_start();
    return true;
}

void armload_stage_end(struct armload_step * step) {
    step->end = armload_count_at_end();
    pthread_mutex_lock(&state.lock);
    release();
    armload_trace_write(step);
    pthread_mutex_unlock(&state.lock);
}

#ifdef ARMLOAD_HAS_PROCESS

int32_t armload_process(struct llama_context * ctx, enum llama_process_type type,
                        struct llama_batch_ext * batch) {
    struct armload_step step = { 0 };
    if (type != LLAMA_PROCESS_TYPE_DECODE || !before(ctx, &step)) {
        return llama_process(ctx, type, batch);
    }
    const int32_t result = llama_process(ctx, type, batch);
    if (result == 0) {
        after(ctx, armload_noted_batch(batch), &step);
    }
    return result;
}

#endif

int32_t armload_decode(struct llama_context * ctx, struct llama_batch batch) {
    struct armload_step step = { 0 };
    if (!before(ctx, &step)) {
        return llama_decode(ctx, batch);
    }
    const int32_t result = llama_decode(ctx, batch);
    if (result == 0) {
        after(ctx, armload_read_batch(&batch), &step);
    }
    return result;
}

static void note_read(struct llama_context * ctx, int32_t row) {
    if (armload_trace_wanted()) {
        pthread_mutex_lock(&state.lock);
        release();
        armload_note_read(armload_context_of(ctx), row);
        pthread_mutex_unlock(&state.lock);
    }
}

float * armload_get_logits_ith(struct llama_context * ctx, int32_t i) {
    note_read(ctx, i);
    return llama_get_logits_ith(ctx, i);
}

// Programs that embed clear the memory between batches whose embeddings they have read.
float * armload_get_embeddings_seq(struct llama_context * ctx, llama_seq_id seq_id) {
    if (armload_trace_wanted()) {
        pthread_mutex_lock(&state.lock);
        if (state.held == armload_context_of(ctx)) {
            release();
        }
        pthread_mutex_unlock(&state.lock);
    }
    return llama_get_embeddings_seq(ctx, seq_id);
}

#ifdef ARMLOAD_HAS_BACKEND_SAMPLING

// The engine may have sampled by itself, so that nobody reads logits.
llama_token armload_get_sampled_token_ith(struct llama_context * ctx, int32_t i) {
    note_read(ctx, i);
    return llama_get_sampled_token_ith(ctx, i);
}

#endif

// Locks the context that has this memory; NULL, and nothing is locked, if it took no step.
static struct armload_context * locked(llama_memory_t memory) {
    if (!armload_trace_wanted()) {
        return NULL;
    }
    pthread_mutex_lock(&state.lock);
    struct armload_context * context = armload_context_of_memory(memory);
    if (context == NULL) {
        pthread_mutex_unlock(&state.lock);
    }
    return context;
}

void armload_memory_clear(llama_memory_t memory, bool data) {
    struct armload_context * context = locked(memory);
    if (context != NULL) {
        if (state.held == context) {
            armload_give_back(context, &state.step);
            state.held = NULL;
        }
        armload_note_removal(context, -1, -1, -1);
        pthread_mutex_unlock(&state.lock);
    }
    llama_memory_clear(memory, data);
}

bool armload_memory_seq_rm(llama_memory_t memory, llama_seq_id seq_id, llama_pos p0, llama_pos p1) {
    const bool               done    = llama_memory_seq_rm(memory, seq_id, p0, p1);
    struct armload_context * context = done ? locked(memory) : NULL;
    if (context != NULL) {
        armload_note_removal(context, seq_id, p0, p1);
        pthread_mutex_unlock(&state.lock);
    }
    return done;
}

void armload_memory_seq_cp(llama_memory_t memory, llama_seq_id from, llama_seq_id to, llama_pos p0,
                           llama_pos p1) {
    llama_memory_seq_cp(memory, from, to, p0, p1);
    struct armload_context * context = locked(memory);
    if (context != NULL) {
        armload_note_copy(context, from, to);
        pthread_mutex_unlock(&state.lock);
    }
}

// No step follows that could record what was accepted.
static void end(struct armload_context * context) {
    const int64_t accepted = armload_take_accepted(context);
    if (accepted > 0) {
        armload_trace_accepted(armload_model_of(context), accepted);
    }
}

void armload_free(struct llama_context * ctx) {
    if (ctx != NULL && armload_trace_wanted()) {
        pthread_mutex_lock(&state.lock);
        release();
        struct armload_context * context = armload_context_of(ctx);
        end(context);
        armload_forget_context(context);
        pthread_mutex_unlock(&state.lock);
    }
    llama_free(ctx);
}

__attribute__((destructor)) static void at_the_end(void) {
    release();
    armload_each_context(end);
    armload_finish_log();
}
