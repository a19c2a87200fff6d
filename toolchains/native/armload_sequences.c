#include "armload_sequences.h"

#include "armload_allocation.h"

#include <string.h>

// In programs of which armload_drafts.c is a part.
extern const bool armload_speculates __attribute__((weak));

struct sequence {
    // of its last step
    int64_t   step;
    int32_t   tokens;
    int32_t   own; // without those that another sequence has too
    int32_t   outputs;
    llama_pos first;
    int32_t   drafted;

    int32_t last_read; // which of these outputs was sampled last; -1 if none
    bool    goes_on;   // what comes next was sampled there
    bool    is_to_cut; // drafts that were refused will be removed
    bool    is_undone; // all of the step is removed, to process again what was accepted
    bool    is_unread; // it ended without an output: the rest of the prompt comes next
};

// An output of the last step: the tool asks for it by its row.
struct output {
    int32_t      row;
    llama_seq_id sequence;
    int32_t      number; // in the sequence
};

struct armload_context {
    const struct llama_context * ctx; // NULL if it was freed
    llama_memory_t               memory;
    int32_t                      model;
    int64_t                      steps; // that it took
    int64_t                      accepted;
    int32_t                      sequence_count;
    struct sequence *            sequences;
    int32_t                      output_count;
    int32_t                      output_capacity;
    struct output *              outputs;
    struct armload_context *     next;
};

static struct armload_context * contexts;

struct armload_context * armload_context_of(struct llama_context * ctx) {
    struct armload_context ** place = &contexts;
    struct armload_context *  spare = NULL;
    int32_t                   model = 0;
    for (; *place != NULL; place = &(*place)->next, model++) {
        if ((*place)->ctx == ctx) {
            return *place;
        }
        if (spare == NULL && (*place)->ctx == NULL) {
            spare = *place;
        }
    }
    if (spare == NULL) {
        spare  = armload_resized(NULL, sizeof(*spare));
        *spare = (struct armload_context) { .model = model };
        *place = spare;
    }
    spare->ctx            = ctx;
    spare->memory         = llama_get_memory(ctx);
    spare->steps          = 0;
    spare->output_count   = 0;
    spare->sequence_count = (int32_t) llama_n_seq_max(ctx);
    const size_t bytes    = (size_t) spare->sequence_count * sizeof(struct sequence);
    spare->sequences      = armload_resized(spare->sequences, bytes);
    memset(spare->sequences, 0, bytes);
    return spare;
}

struct armload_context * armload_context_of_memory(llama_memory_t memory) {
    struct armload_context * context = contexts;
    while (context != NULL && (context->ctx == NULL || context->memory != memory)) {
        context = context->next;
    }
    return context;
}

void armload_each_context(void (*done)(struct armload_context * context)) {
    for (struct armload_context * context = contexts; context != NULL; context = context->next) {
        if (context->ctx != NULL) {
            done(context);
        }
    }
}

int32_t armload_model_of(const struct armload_context * context) {
    return context->model;
}

// Whoever verifies drafts samples their outputs in order, up to the first that was refused.
static void settle(struct armload_context * context, struct sequence * sequence) {
    if (sequence->drafted > 0 && sequence->last_read >= 0) {
        context->accepted += sequence->last_read;
        sequence->drafted = 0;
    }
}

int64_t armload_take_accepted(struct armload_context * context) {
    for (int32_t i = 0; i < context->sequence_count; i++) {
        settle(context, &context->sequences[i]);
    }
    const int64_t accepted = context->accepted;
    context->accepted      = 0;
    return accepted;
}

void armload_give_back(struct armload_context * context, const struct armload_step * step) {
    context->accepted += step->accepted_tokens;
}

void armload_forget_context(struct armload_context * context) {
    context->ctx = NULL;
}

static void put_output(struct armload_context * context, struct output output) {
    if (context->output_count == context->output_capacity) {
        context->output_capacity = 2 * context->output_capacity + 64;
        context->outputs         = armload_resized(
            context->outputs, (size_t) context->output_capacity * sizeof(output));
    }
    context->outputs[context->output_count++] = output;
}

// The tokens of a prompt do not ask for an output each; those that were sampled, and drafts, do.
static void count_sequence(struct sequence * sequence, struct armload_step * step) {
    const bool all_output = sequence->outputs == sequence->tokens;
    const bool is_again =
        sequence->is_undone && all_output && sequence->tokens == sequence->last_read + 2;
    const int32_t next = sequence->own > 0 ? 1 : 0;
    const bool drafts_follow = sequence->is_unread && all_output && &armload_speculates != NULL;
    sequence->drafted  = 0;
    if (is_again) {
        step->generated_tokens += next;
        step->prompt_tokens += sequence->own - next;
    } else if (sequence->goes_on && (all_output || sequence->tokens == 1)) {
        step->generated_tokens += next;
        step->speculated_tokens += sequence->own - next;
        sequence->drafted = sequence->tokens - 1;
    } else if (drafts_follow) {
        step->prompt_tokens += next;
        step->speculated_tokens += sequence->own - next;
        sequence->drafted = sequence->tokens - 1;
    } else {
        step->prompt_tokens += sequence->own;
    }
    sequence->is_to_cut = sequence->drafted > 0 || is_again;
    sequence->last_read = -1;
    sequence->goes_on   = false;
    sequence->is_undone = false;
    sequence->is_unread = sequence->outputs == 0;
}

void armload_count_tokens(struct armload_context * context, const struct armload_batch * batch,
                          struct armload_step * step) {
    step->model           = context->model;
    step->tokens          = batch->rows;
    step->accepted_tokens = armload_take_accepted(context);
    context->steps++;
    context->output_count = 0;
    for (int32_t i = 0; i < batch->count; i++) {
        const struct armload_entry * entry    = &batch->entries[i];
        struct sequence *            sequence = &context->sequences[entry->sequence];
        if (sequence->step != context->steps) {
            sequence->step    = context->steps;
            sequence->first   = entry->position;
            sequence->tokens  = 0;
            sequence->own     = 0;
            sequence->outputs = 0;
        }
        sequence->tokens++;
        sequence->own += entry->is_shared ? 0 : 1;
        step->media_tokens += entry->is_media && !entry->is_shared ? 1 : 0;
        if (entry->is_output) {
            put_output(context, (struct output) { entry->row, entry->sequence, sequence->outputs++ });
        }
    }
    for (int32_t i = 0; i < context->sequence_count; i++) {
        if (context->sequences[i].step == context->steps) {
            step->sequences++;
            count_sequence(&context->sequences[i], step);
        }
    }
}

// -1 is the last row that has an output.
static int32_t row_of(const struct armload_context * context, int32_t row) {
    for (int32_t i = context->output_count; row < 0 && i-- > 0;) {
        const bool is_new = i == 0 || context->outputs[i - 1].row != context->outputs[i].row;
        if (is_new && ++row == 0) {
            return context->outputs[i].row;
        }
    }
    return row;
}

void armload_note_read(struct armload_context * context, int32_t row) {
    row = row_of(context, row);
    for (int32_t i = 0; i < context->output_count; i++) {
        const struct output * output   = &context->outputs[i];
        struct sequence *     sequence = &context->sequences[output->sequence];
        if (output->row == row) {
            sequence->goes_on = true;
            if (output->number > sequence->last_read) {
                sequence->last_read = output->number;
            }
        }
    }
}

// The first removal after drafts takes away those that were refused. Any other one begins a prompt.
static void cut(struct sequence * sequence, llama_pos from) {
    if (&armload_speculates != NULL && from >= sequence->first + sequence->tokens) {
        return; // nothing lies there: the program does so after every step
    }
    const bool verifies = sequence->is_to_cut && sequence->last_read >= 0;
    sequence->is_to_cut = false;
    sequence->is_undone = verifies && from >= 0 && from == sequence->first;
    sequence->goes_on   = sequence->goes_on && verifies && from > sequence->first;
}

void armload_note_removal(struct armload_context * context, llama_seq_id sequence, llama_pos from,
                          llama_pos to) {
    if (to >= 0) {
        return; // from the middle, to make room
    }
    for (int32_t i = 0; i < context->sequence_count; i++) {
        if (sequence < 0 || sequence == i) {
            cut(&context->sequences[i], from);
        }
    }
}

// The copy goes on from the outputs of the original.
void armload_note_copy(struct armload_context * context, llama_seq_id from, llama_seq_id to) {
    if (from == to) {
        return;
    }
    settle(context, &context->sequences[to]);
    context->sequences[to]         = context->sequences[from];
    context->sequences[to].drafted = 0;
    for (int32_t i = context->output_count; i-- > 0;) {
        if (context->outputs[i].sequence == from) {
            put_output(context,
                       (struct output) { context->outputs[i].row, to, context->outputs[i].number });
        }
    }
}
