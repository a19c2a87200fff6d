#include "armload_trace.h"

#include "armload_log.h"
#include "armload_step.h"

#include <pthread.h>
#include <stddef.h>

// A step is held back until something shows that its result is used: logits are read, or another
// step follows, or the program ends. A step whose memory is cleared before that was a warm-up or a
// probe of the model, and is no part of the run.
static struct {
    pthread_mutex_t        lock;
    bool                   held;
    llama_memory_t         memory;   // of the context that took the step held back
    struct llama_context * sampled;  // the context whose logits were read since its last step
    struct armload_step    step;
} state = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void release(void) {
    if (state.held) {
        state.held = false;
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

static void after(struct llama_context * ctx, struct armload_step * step) {
    step->end = armload_count_at_end();
    pthread_mutex_lock(&state.lock);
    release();
    step->phase   = state.sampled == ctx && step->tokens == 1 ? ARMLOAD_GENERATE : ARMLOAD_PROMPT;
    state.step    = *step;
    state.memory  = llama_get_memory(ctx);
    state.sampled = NULL;
    state.held    = true;
    pthread_mutex_unlock(&state.lock);
}

#ifdef ARMLOAD_HAS_PROCESS

// Upstream counts a call of one token in n_eval and any other in n_p_eval, and reports 1 for 0.
// A call of two or more tokens is never counted as 1, so a 1 in n_p_eval is a 0.
static int64_t counted_in_batches(const struct llama_context * ctx) {
    const int32_t reported = llama_perf_context(ctx).n_p_eval;
    return reported > 1 ? reported : 0;
}

int32_t armload_process(struct llama_context * ctx, enum llama_process_type type,
                        struct llama_batch_ext * batch) {
    struct armload_step step;
    if (type != LLAMA_PROCESS_TYPE_DECODE || !before(ctx, &step)) {
        return llama_process(ctx, type, batch);
    }
    const int64_t counted = counted_in_batches(ctx);
    const int32_t result  = llama_process(ctx, type, batch);
    if (result == 0) {
        llama_synchronize(ctx);
        const int64_t in_batch = counted_in_batches(ctx) - counted;
        step.tokens = in_batch > 0 ? in_batch : 1;
        after(ctx, &step);
    }
    return result;
}

#endif

int32_t armload_decode(struct llama_context * ctx, struct llama_batch batch) {
    struct armload_step step;
    if (!before(ctx, &step)) {
        return llama_decode(ctx, batch);
    }
    step.tokens = batch.n_tokens;
    const int32_t result = llama_decode(ctx, batch);
    if (result == 0) {
        llama_synchronize(ctx);
        after(ctx, &step);
    }
    return result;
}

float * armload_get_logits_ith(struct llama_context * ctx, int32_t i) {
    if (armload_trace_wanted()) {
        pthread_mutex_lock(&state.lock);
        release();
        state.sampled = ctx;
        pthread_mutex_unlock(&state.lock);
    }
    return llama_get_logits_ith(ctx, i);
}

void armload_memory_clear(llama_memory_t memory, bool data) {
    if (armload_trace_wanted()) {
        pthread_mutex_lock(&state.lock);
        if (state.memory == memory) {
            state.held = false;
        }
        pthread_mutex_unlock(&state.lock);
    }
    llama_memory_clear(memory, data);
}

__attribute__((destructor)) static void at_the_end(void) {
    release();
    armload_finish_log();
}
