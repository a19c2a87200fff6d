#include "armload_batch.h"

#include "armload_allocation.h"
#include "armload_trace_file.h"

#include <pthread.h>

static void put(struct armload_batch * noted, struct armload_entry entry) {
    if (noted->count == noted->capacity) {
        noted->capacity = 2 * noted->capacity + 64;
        noted->entries  = armload_resized(noted->entries, (size_t) noted->capacity * sizeof(entry));
    }
    noted->entries[noted->count++] = entry;
}

const struct armload_batch * armload_read_batch(const struct llama_batch * batch) {
    static _Thread_local struct armload_batch read;
    read.rows  = batch->n_tokens;
    read.count = 0;
    for (int32_t row = 0; row < batch->n_tokens; row++) {
        struct armload_entry entry = {
            .row       = row,
            .position  = batch->pos != NULL ? batch->pos[row] : -1,
            .is_output = batch->logits != NULL ? batch->logits[row] != 0 : row == batch->n_tokens - 1,
            .is_media  = batch->token == NULL,
        };
        const int32_t sequences = batch->seq_id != NULL ? batch->n_seq_id[row] : 1;
        for (int32_t i = 0; i < sequences; i++) {
            entry.sequence  = batch->seq_id != NULL ? batch->seq_id[row][i] : 0;
            entry.is_shared = i > 0;
            put(&read, entry);
        }
    }
    return &read;
}

#ifdef ARMLOAD_HAS_PROCESS

// Tools make a batch for each step; the note of one that was freed is used again.
static struct {
    pthread_mutex_t        lock;
    struct armload_batch * first;
} notes = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct armload_batch * search(const void * batch) {
    struct armload_batch * noted = notes.first;
    while (noted != NULL && noted->batch != batch) {
        noted = noted->next;
    }
    return noted;
}

static struct armload_batch * note_of(const void * batch) {
    if (!armload_trace_wanted()) {
        return NULL;
    }
    pthread_mutex_lock(&notes.lock);
    struct armload_batch * noted = search(batch);
    pthread_mutex_unlock(&notes.lock);
    return noted;
}

const struct armload_batch * armload_noted_batch(const struct llama_batch_ext * batch) {
    return note_of(batch);
}

struct llama_batch_ext * armload_batch_ext_init(struct llama_context * ctx) {
    struct llama_batch_ext * batch = llama_batch_ext_init(ctx);
    if (!armload_trace_wanted()) {
        return batch;
    }
    pthread_mutex_lock(&notes.lock);
    struct armload_batch * noted = search(NULL);
    if (noted == NULL) {
        noted       = armload_resized(NULL, sizeof(*noted));
        *noted      = (struct armload_batch) { .next = notes.first };
        notes.first = noted;
    }
    noted->batch = batch;
    noted->rows  = 0;
    noted->count = 0;
    pthread_mutex_unlock(&notes.lock);
    return batch;
}

void armload_batch_ext_free(struct llama_batch_ext * batch) {
    struct armload_batch * noted = batch != NULL ? note_of(batch) : NULL;
    if (noted != NULL) {
        pthread_mutex_lock(&notes.lock);
        noted->batch = NULL;
        pthread_mutex_unlock(&notes.lock);
    }
    llama_batch_ext_free(batch);
}

void armload_batch_ext_clear(struct llama_batch_ext * batch) {
    struct armload_batch * noted = note_of(batch);
    if (noted != NULL) {
        noted->rows  = 0;
        noted->count = 0;
    }
    llama_batch_ext_clear(batch);
}

static int32_t added(const struct llama_batch_ext * batch, llama_seq_id sequence, int32_t row,
                     bool is_media) {
    struct armload_batch * noted = row >= 0 ? note_of(batch) : NULL;
    if (noted != NULL) {
        put(noted, (struct armload_entry) {
            .row = row, .sequence = sequence, .position = -1, .is_media = is_media });
        noted->rows = row + 1;
    }
    return row;
}

int32_t armload_batch_ext_add(struct llama_batch_ext * batch, llama_seq_id seq_id) {
    return added(batch, seq_id, llama_batch_ext_add(batch, seq_id), false);
}

int32_t armload_batch_ext_add_token(struct llama_batch_ext * batch, llama_seq_id seq_id,
                                    llama_token id) {
    return added(batch, seq_id, llama_batch_ext_add_token(batch, seq_id, id), false);
}

int32_t armload_batch_ext_add_embd(struct llama_batch_ext * batch, llama_seq_id seq_id,
                                   struct llama_embd embd) {
    return added(batch, seq_id, llama_batch_ext_add_embd(batch, seq_id, embd), true);
}

// The newest entry of a row, where tools mostly write.
static struct armload_entry * entry_of(struct armload_batch * noted, int32_t row) {
    for (int32_t i = noted != NULL ? noted->count : 0; i-- > 0;) {
        if (noted->entries[i].row == row) {
            return &noted->entries[i];
        }
    }
    return NULL;
}

bool armload_batch_ext_add_seq(struct llama_batch_ext * batch, int32_t idx, llama_seq_id seq_id) {
    const bool done = llama_batch_ext_add_seq(batch, idx, seq_id);
    struct armload_batch *       noted = note_of(batch);
    const struct armload_entry * entry = entry_of(noted, idx);
    if (done && entry != NULL) {
        struct armload_entry other = *entry;
        other.sequence             = seq_id;
        other.is_shared            = true;
        put(noted, other);
    }
    return done;
}

static void set_output(const struct llama_batch_ext * batch, int32_t row, bool value) {
    struct armload_batch * noted = note_of(batch);
    for (struct armload_entry * entry = entry_of(noted, row);
         entry != NULL && entry >= noted->entries && entry->row == row; entry--) {
        entry->is_output = value;
    }
}

bool armload_batch_ext_set_output_embd(struct llama_batch_ext * batch, int32_t idx, bool value) {
    set_output(batch, idx, value);
    return llama_batch_ext_set_output_embd(batch, idx, value);
}

bool armload_batch_ext_set_output_logits(struct llama_batch_ext * batch, int32_t idx, bool value) {
    set_output(batch, idx, value);
    return llama_batch_ext_set_output_logits(batch, idx, value);
}

bool armload_batch_ext_set_pos(struct llama_batch_ext * batch, int32_t idx, const llama_pos * pos) {
    const bool             done  = llama_batch_ext_set_pos(batch, idx, pos);
    struct armload_entry * entry = entry_of(note_of(batch), idx);
    if (done && entry != NULL) {
        entry->position = pos[0];
    }
    return done;
}

#endif
