#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "armload_reader.h"

#include "armload_mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
    IN_FLIGHT_BYTES = 2 << 20,   // of requests that the storage works on
    REQUEST_BYTES   = 128 << 10, // the kernel cuts longer ones to the device's readahead
};

static struct {
    pthread_mutex_t         lock;
    pthread_cond_t          changed;
    pthread_t               thread;
    bool                    runs;
    bool                    stops;
    bool                    has_swap;
    bool                    keeps_no_more; // memory was refused
    struct armload_pieces * pieces;
    int64_t                 window_bytes;
    uint64_t                submitted; // these four count pieces, over all passes
    uint64_t                arrived;
    uint64_t                passed;
    uint64_t                dropped;
    uint64_t                needed;
    int64_t                 in_flight_bytes;
    int64_t                 ahead_bytes; // read and not dropped, without what is held
    int64_t                 wait_ns;
    uintptr_t               page_bytes;
    struct armload_held     held;
} reader = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static struct armload_piece * piece_at(uint64_t position) {
    return &reader.pieces->each[position % reader.pieces->count];
}

static bool is_streamed(const struct armload_piece * piece) {
    return !piece->held && !piece->mapped;
}

static void request(const struct armload_piece * piece) {
    for (const char * begin = piece->begin; begin < piece->end; begin += REQUEST_BYTES) {
        const size_t bytes = (size_t) (piece->end - begin);
        readahead(piece->file, begin - piece->base, bytes < REQUEST_BYTES ? bytes : REQUEST_BYTES);
    }
}

// Waits for each page, and maps it for all threads.
static void touch(const struct armload_piece * piece) {
    for (const volatile char * page = piece->begin; page < piece->end; page += reader.page_bytes) {
        (void) *page;
    }
}

static void drop(const struct armload_piece * piece) {
    if (piece->drop_end > piece->drop_begin) {
        const size_t bytes = (size_t) (piece->drop_end - piece->drop_begin);
        madvise(piece->drop_begin, bytes, MADV_DONTNEED);
        posix_fadvise(piece->file, piece->drop_begin - piece->base, (off_t) bytes, POSIX_FADV_DONTNEED);
    }
}

// Without swap, anonymous memory stays as surely as locked one.
static bool copy_to_anonymous(struct armload_piece * piece) {
    const size_t bytes = (size_t) (piece->end - piece->begin);
    char *       copy  = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) {
        return false;
    }
    memcpy(copy, piece->begin, bytes);
    mprotect(copy, bytes, PROT_READ);
    if (mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, piece->begin) == MAP_FAILED) {
        munmap(copy, bytes);
        return false;
    }
    posix_fadvise(piece->file, piece->drop_begin - piece->base, piece->drop_end - piece->drop_begin,
                  POSIX_FADV_DONTNEED);
    return true;
}

static bool is_limited(size_t more_bytes) {
    struct rlimit limit;
    return errno == EPERM || errno == ENOSYS
        || (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY
            && (uint64_t) reader.held.locked_bytes + more_bytes > limit.rlim_cur);
}

// Returns how the piece is held, if it is, by the count that it belongs to.
static int64_t * hold(struct armload_piece * piece) {
    const size_t bytes = (size_t) (piece->end - piece->begin);
    if (!reader.held.refused) {
        if (mlock(piece->begin, bytes) == 0) {
            return &reader.held.locked_bytes;
        }
        if (!is_limited(bytes)) {
            return NULL;
        }
        reader.held.refused = true;
    }
    if (reader.has_swap) {
        return &reader.held.cached_bytes;
    }
    piece->anonymous = copy_to_anonymous(piece);
    return piece->anonymous ? &reader.held.anonymous_bytes : NULL;
}

// Everything below is called with the lock held, and gives it up while it reads or drops.

static void drop_passed(void) {
    struct armload_piece * piece    = piece_at(reader.dropped);
    const bool             was_read = reader.dropped < reader.submitted;
    if (was_read && !piece->held) {
        reader.ahead_bytes -= piece->mapped ? 0 : armload_piece_bytes(piece);
        pthread_mutex_unlock(&reader.lock);
        drop(piece);
        pthread_mutex_lock(&reader.lock);
    }
    reader.dropped++;
}

static bool may_submit(void) {
    const struct armload_piece * piece = piece_at(reader.submitted);
    const bool is_to_stay              = piece->resident && !reader.keeps_no_more;
    if (reader.in_flight_bytes >= IN_FLIGHT_BYTES) {
        return false;
    }
    if (reader.submitted - reader.dropped >= reader.pieces->count) {
        return false; // a whole pass ahead, which is where all of them are held
    }
    return !is_streamed(piece) || is_to_stay || reader.submitted < reader.needed
        || reader.ahead_bytes + armload_piece_bytes(piece) <= reader.window_bytes;
}

static void submit(void) {
    struct armload_piece * piece = piece_at(reader.submitted);
    if (is_streamed(piece)) {
        reader.ahead_bytes += armload_piece_bytes(piece);
        reader.in_flight_bytes += armload_piece_bytes(piece);
        pthread_mutex_unlock(&reader.lock);
        request(piece);
        pthread_mutex_lock(&reader.lock);
    }
    reader.submitted++;
}

static void take_arrived(void) {
    struct armload_piece * piece = piece_at(reader.arrived);
    if (is_streamed(piece)) {
        const int64_t bytes = armload_piece_bytes(piece);
        const bool    stays = piece->resident && !reader.keeps_no_more;
        int64_t *     count = NULL;
        pthread_mutex_unlock(&reader.lock);
        touch(piece);
        if (stays) {
            count = hold(piece);
        }
        pthread_mutex_lock(&reader.lock);
        reader.in_flight_bytes -= bytes;
        if (count != NULL) {
            *count += bytes;
            piece->held = true;
            reader.ahead_bytes -= bytes;
        } else if (stays) {
            reader.keeps_no_more = true;
        }
    }
    reader.arrived++;
    if (reader.arrived >= reader.needed) {
        pthread_cond_broadcast(&reader.changed);
    }
}

// A pass may leave weights out, as one whose output nobody reads.
static void skip_passed(void) {
    while (reader.arrived < reader.passed) {
        const struct armload_piece * piece = piece_at(reader.arrived++);
        if (reader.arrived <= reader.submitted && is_streamed(piece)) {
            reader.in_flight_bytes -= armload_piece_bytes(piece);
        }
    }
    if (reader.submitted < reader.passed) {
        reader.submitted = reader.passed;
    }
}

static void * run(void * unused) {
    (void) unused;
    pthread_mutex_lock(&reader.lock);
    while (!reader.stops) {
        if (reader.submitted >= reader.passed && may_submit()) {
            submit(); // first, so that the storage is busy while the rest is done
        } else if (reader.dropped < reader.passed) {
            drop_passed();
        } else if (reader.arrived < reader.passed) {
            skip_passed();
        } else if (reader.arrived < reader.submitted) {
            take_arrived();
        } else {
            pthread_cond_wait(&reader.changed, &reader.lock);
        }
    }
    pthread_mutex_unlock(&reader.lock);
    return NULL;
}

bool armload_can_read_ahead(const char * weights) {
    struct armload_mapping mapping;
    return armload_find_mapping(weights, &mapping) && readahead(mapping.file, 0, 1) == 0;
}

bool armload_start_reader(struct armload_pieces * pieces, int64_t window_bytes, bool has_swap) {
    reader.pieces       = pieces;
    reader.window_bytes = window_bytes;
    reader.has_swap     = has_swap;
    reader.page_bytes   = (uintptr_t) sysconf(_SC_PAGESIZE);
    for (size_t number = 0; number < pieces->count; number++) {
        const struct armload_piece * piece = &pieces->each[number];
        madvise(piece->begin, (size_t) armload_piece_bytes(piece),
                piece->mapped ? MADV_SEQUENTIAL : MADV_RANDOM);
    }
    reader.stops = false;
    reader.runs  = pthread_create(&reader.thread, NULL, run, NULL) == 0;
    return reader.runs;
}

void armload_stop_reader(void) {
    if (!reader.runs) {
        return;
    }
    pthread_mutex_lock(&reader.lock);
    reader.stops = true;
    pthread_cond_broadcast(&reader.changed);
    pthread_mutex_unlock(&reader.lock);
    pthread_join(reader.thread, NULL);
    reader.runs = false;
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
}

void armload_await_piece(uint64_t position) {
    pthread_mutex_lock(&reader.lock);
    if (reader.arrived < position) {
        const int64_t start_ns = now_ns();
        reader.needed          = position;
        pthread_cond_broadcast(&reader.changed);
        while (reader.arrived < position) {
            pthread_cond_wait(&reader.changed, &reader.lock);
        }
        reader.wait_ns += now_ns() - start_ns;
    }
    pthread_mutex_unlock(&reader.lock);
}

void armload_passed_piece(uint64_t position) {
    pthread_mutex_lock(&reader.lock);
    reader.passed = position;
    pthread_cond_broadcast(&reader.changed);
    pthread_mutex_unlock(&reader.lock);
}

int64_t armload_storage_wait_ns(void) {
    pthread_mutex_lock(&reader.lock);
    const int64_t wait_ns = reader.wait_ns;
    pthread_mutex_unlock(&reader.lock);
    return wait_ns;
}

struct armload_held armload_held(void) {
    pthread_mutex_lock(&reader.lock);
    const struct armload_held held = reader.held;
    pthread_mutex_unlock(&reader.lock);
    return held;
}

// Between what is dropped and what is submitted, the reader takes it for read.
static bool is_ahead(size_t number) {
    const uint64_t count = reader.pieces->count;
    const uint64_t next  = reader.dropped + (number + count - reader.dropped % count) % count;
    return next < reader.submitted;
}

// The pages stay until the kernel or the next pass drops them: dropping takes longer than there may be.
static int64_t give_up(size_t number) {
    struct armload_piece * piece = &reader.pieces->each[number];
    const int64_t          bytes = armload_piece_bytes(piece);
    piece->resident              = false;
    piece->held                  = false;
    reader.held.released_bytes += bytes;
    if (piece->anonymous) {
        piece->anonymous = false;
        reader.held.anonymous_bytes -= bytes;
        mmap(piece->begin, (size_t) bytes, PROT_READ, MAP_SHARED | MAP_FIXED, piece->file,
             piece->begin - piece->base);
        madvise(piece->begin, (size_t) bytes, MADV_RANDOM);
    } else if (reader.held.refused && reader.held.cached_bytes >= bytes) {
        reader.held.cached_bytes -= bytes;
    } else {
        reader.held.locked_bytes -= bytes;
        munlock(piece->begin, (size_t) bytes);
    }
    if (is_ahead(number)) {
        reader.ahead_bytes += bytes;
    }
    return bytes;
}

void armload_release_held(int64_t bytes) {
    pthread_mutex_lock(&reader.lock);
    reader.keeps_no_more = true;
    bool found           = true;
    while (bytes > 0 && found) {
        found = false;
        for (int index = 0; index < reader.pieces->tensor_count && bytes > 0; index++) {
            const struct armload_tensor * tensor = &reader.pieces->tensors[index];
            for (size_t number = tensor->end_piece; number-- > tensor->first_piece;) {
                if (reader.pieces->each[number].held) {
                    bytes -= give_up(number);
                    found = true;
                    break;
                }
            }
        }
    }
    pthread_mutex_unlock(&reader.lock);
}
