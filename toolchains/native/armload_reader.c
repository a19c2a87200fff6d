#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "armload_reader.h"

#include "armload_allocation.h"
#include "armload_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum {
    MOST_THREADS       = 4,       // so many requests keep the storage busy
    REQUEST_BYTES      = 1 << 20, // each wakes a thread, for which one that computes has to make room
    CACHE_STEP_BYTES   = 128 << 10,
    INPUT_OUTPUT_ERROR = 74, // EX_IOERR of sysexits.h
};

static const uint64_t NOTHING = UINT64_MAX;

void armload_end_program(const char * why) {
    const ssize_t ignored = write(STDERR_FILENO, why, strlen(why));
    (void) ignored;
    _exit(INPUT_OUTPUT_ERROR);
}

void armload_end_for_storage_error(void) {
    armload_end_program(
        "\narmload: the model cannot be read: the storage reported an error, or the file was truncated\n");
}

static struct {
    char * begin;
    size_t bytes;
    size_t slot_bytes;
} window;

static size_t bytes_of(const struct armload_piece * piece) {
    return (size_t) armload_piece_bytes(piece);
}

static char * slot_of(const struct armload_piece * piece) {
    return window.begin + (size_t) piece->slot * window.slot_bytes;
}

// Puts the file in place of anything else: the kernel reads it when it is used.
static void show_file(const struct armload_piece * piece) {
    // What stood there before are other weights: going on would compute with them.
    if (mmap(piece->begin, bytes_of(piece), PROT_READ, MAP_SHARED | MAP_FIXED, piece->file,
             piece->offset) == MAP_FAILED) {
        perror("armload: a part of the model's file cannot be mapped again");
        abort();
    }
}

static bool show_slot(const struct armload_piece * piece, int file) {
    return mmap(piece->begin, bytes_of(piece), PROT_READ, MAP_SHARED | MAP_FIXED, file,
                slot_of(piece) - window.begin) != MAP_FAILED;
}

static bool open_ring(int file, size_t bytes) {
    if (file < 0 || ftruncate(file, (off_t) bytes) != 0) {
        return false;
    }
    void * const begin = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (begin == MAP_FAILED) {
        return false;
    }
    window.begin = begin;
    window.bytes = bytes;
    return true;
}

bool armload_open_window(struct armload_pieces * pieces) {
    const int file    = memfd_create("armload", MFD_CLOEXEC);
    window.slot_bytes = pieces->piece_bytes;
    bool done = pieces->slot_count == 0 || open_ring(file, (size_t) pieces->slot_count * window.slot_bytes);
    for (size_t number = 0; done && number < pieces->count; number++) {
        const struct armload_piece * piece = &pieces->each[number];
        if (piece->place == ARMLOAD_IN_WINDOW) {
            done = show_slot(piece, file);
        } else if (piece->place == ARMLOAD_MAPPED && !piece->resident) {
            show_file(piece);
            madvise(piece->begin, bytes_of(piece), MADV_SEQUENTIAL);
        }
    }
    if (file >= 0) {
        close(file);
    }
    return done;
}

void armload_close_window(struct armload_pieces * pieces) {
    for (size_t number = 0; number < pieces->count; number++) {
        struct armload_piece * piece = &pieces->each[number];
        if (piece->place == ARMLOAD_IN_WINDOW) {
            piece->place = ARMLOAD_MAPPED;
            show_file(piece);
        }
    }
    if (window.bytes > 0) {
        munmap(window.begin, window.bytes);
        window.bytes = 0;
    }
}

void armload_hide_window(const struct armload_pieces * pieces, size_t first, size_t end) {
    while (first < end) {
        const struct armload_piece * piece = &pieces->each[first++];
        char *                       last  = piece->end;
        if (piece->slot < 0) {
            continue;
        }
        while (first < end && pieces->each[first].begin == last && pieces->each[first].slot >= 0) {
            last = pieces->each[first++].end;
        }
        madvise(piece->begin, (size_t) (last - piece->begin), MADV_DONTNEED);
    }
}

void armload_lock_edges(const struct armload_pieces * pieces) {
    const uintptr_t page = (uintptr_t) sysconf(_SC_PAGESIZE);
    for (int index = 0; index < pieces->tensor_count; index++) {
        const struct armload_tensor * tensor  = &pieces->tensors[index];
        const uintptr_t               begin   = (uintptr_t) tensor->begin;
        const uintptr_t               edges[] = { begin, begin + tensor->bytes };
        for (int edge = 0; edge < 2; edge++) {
            char * const shared = (char *) (edges[edge] & ~(page - 1));
            if (edges[edge] % page != 0) {
                madvise(shared, page, MADV_RANDOM);
                mlock(shared, page);
            }
        }
    }
}

// What is or was in the page cache would take its place from others, and say nothing of the storage.
static void drop_from_cache(const struct armload_piece * piece, size_t bytes) {
    posix_fadvise(piece->file, piece->offset, (off_t) bytes, POSIX_FADV_DONTNEED);
}

// Returns false where the file system refused to read directly; then it was read through the page cache.
static bool read_into(char * into, const struct armload_piece * piece, const struct armload_turn * turn,
                      size_t needed) {
    const size_t bytes      = (size_t) turn->bytes;
    bool         is_refused = false;
    int          file       = turn->way == ARMLOAD_DIRECT ? piece->direct : piece->file;
    if (turn->compared) {
        drop_from_cache(piece, bytes);
    }
    for (size_t done = 0; done < needed;) {
        const ssize_t count = pread(file, into + done, bytes - done, piece->offset + (off_t) done);
        if (count > 0) {
            done += (size_t) count;
        } else if (count < 0 && errno == EINVAL && file != piece->file) {
            is_refused = true;
            file       = piece->file;
        } else if (count == 0 || errno != EINTR) {
            armload_end_for_storage_error();
        }
    }
    drop_from_cache(piece, bytes);
    return !is_refused;
}

// Both read from the file: so many bytes from a piece's beginning on into its slot and those that follow, or
// the piece into memory that was claimed for it.
static bool read_into_window(const struct armload_piece * piece, const struct armload_turn * turn) {
    return read_into(slot_of(piece), piece, turn, (size_t) turn->bytes);
}

// Has the kernel read a mapped piece, and nothing beyond it.
static void read_into_cache(const struct armload_piece * piece) {
    madvise(piece->begin, bytes_of(piece), MADV_RANDOM);
    // The kernel cuts each request to the size of its readahead window.
    for (char * begin = piece->begin; begin < piece->end; begin += CACHE_STEP_BYTES) {
        const size_t left = (size_t) (piece->end - begin);
        madvise(begin, left < CACHE_STEP_BYTES ? left : CACHE_STEP_BYTES, MADV_WILLNEED);
    }
}

// Puts anonymous memory in place of the file. Returns false where there is none.
static bool claim_memory(const struct armload_piece * piece) {
    return mmap(piece->begin, bytes_of(piece), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

static bool read_into_memory(const struct armload_piece * piece, const struct armload_turn * turn) {
    const bool done = read_into(piece->begin, piece, turn, (size_t) turn->bytes);
    mprotect(piece->begin, bytes_of(piece), PROT_READ);
    return done;
}

static struct {
    pthread_mutex_t         lock;
    pthread_cond_t          room;   // in the window, or the end
    pthread_cond_t          filled; // what the computation waits for
    pthread_t               threads[MOST_THREADS];
    int                     thread_count;
    bool                    stops;
    bool                    has_swap;
    bool                    keeps_no_more; // memory was refused
    bool                    lacks_slots;
    struct armload_pieces * pieces;
    uint64_t                reads[MOST_THREADS]; // the position that each thread reads
    uint64_t *              in_slot;             // the latest position of each
    uint64_t                next;
    uint64_t                passed;
    uint64_t                needed;
    int64_t                 wait_ns;
    struct armload_held     held;
} reader = {
    .lock   = PTHREAD_MUTEX_INITIALIZER,
    .room   = PTHREAD_COND_INITIALIZER,
    .filled = PTHREAD_COND_INITIALIZER,
};

static struct {
    struct armload_request * each;
    size_t                   room;
    size_t                   first; // that no thread has taken
    size_t                   end;
} requests;

void armload_lock_pieces(void) {
    pthread_mutex_lock(&reader.lock);
}

void armload_unlock_pieces(void) {
    pthread_mutex_unlock(&reader.lock);
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
}

static struct armload_piece * piece_at(uint64_t position) {
    return &reader.pieces->each[position % reader.pieces->count];
}

// These are called with the lock held; read_at gives it up meanwhile.

// Everything before this position is in memory.
static uint64_t arrived(void) {
    uint64_t position = reader.next;
    for (int number = 0; number < reader.thread_count; number++) {
        position = reader.reads[number] < position ? reader.reads[number] : position;
    }
    return position;
}

static bool is_free(int slot) {
    const uint64_t position = reader.in_slot[slot];
    return position == NOTHING || (position < reader.passed && position < arrived());
}

static void keep_no_more(struct armload_piece * piece) {
    reader.keeps_no_more = true;
    reader.lacks_slots   = true;
    piece->resident      = false;
    show_file(piece);
}

static bool is_limited(size_t more_bytes) {
    struct rlimit limit;
    return errno == EPERM || errno == ENOSYS
        || (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY
            && (uint64_t) armload_locked_bytes() + more_bytes > limit.rlim_cur);
}

// Pages are filled by the thread that reads into them, not here, where others wait for the lock.
static bool lock(const char * begin, size_t bytes) {
    return mlock2(begin, bytes, MLOCK_ONFAULT) == 0 || (errno == ENOSYS && mlock(begin, bytes) == 0);
}

// Returns whether there is memory for the piece, and notes how it is held. Without swap, anonymous memory
// stays as surely as locked one.
static bool claim(struct armload_piece * piece) {
    const size_t bytes = (size_t) armload_piece_bytes(piece);
    if (reader.keeps_no_more) {
        return false;
    }
    if (reader.held.refused && reader.has_swap) {
        show_file(piece);
        read_into_cache(piece);
        piece->place = ARMLOAD_CACHED;
    } else if (!claim_memory(piece)) {
        return false;
    } else if (!reader.held.refused && lock(piece->begin, bytes)) {
        piece->place = ARMLOAD_LOCKED;
    } else if (!reader.held.refused && !is_limited(bytes)) {
        return false;
    } else {
        reader.held.refused = true;
        if (reader.has_swap) {
            return claim(piece);
        }
        piece->place = ARMLOAD_ANONYMOUS;
    }
    reader.held.bytes[piece->place] += (int64_t) bytes;
    return true;
}

enum armload_place armload_hold(const char * begin, size_t bytes) {
    enum armload_place place = ARMLOAD_MAPPED;
    pthread_mutex_lock(&reader.lock);
    if (!reader.keeps_no_more) {
        if (!reader.held.refused && lock(begin, bytes)) {
            place = ARMLOAD_LOCKED;
        } else if (reader.held.refused || is_limited(bytes)) {
            reader.held.refused = true;
            place               = reader.has_swap ? ARMLOAD_MAPPED : ARMLOAD_ANONYMOUS;
        }
        reader.keeps_no_more = place == ARMLOAD_MAPPED && !reader.held.refused;
        reader.held.bytes[place] += place == ARMLOAD_MAPPED ? 0 : (int64_t) bytes;
    }
    pthread_mutex_unlock(&reader.lock);
    return place;
}

void armload_no_longer_held(enum armload_place place, size_t bytes) {
    pthread_mutex_lock(&reader.lock);
    reader.held.bytes[place] -= (int64_t) bytes;
    reader.held.released_bytes += (int64_t) bytes;
    pthread_mutex_unlock(&reader.lock);
}

void armload_hold_no_more(void) {
    pthread_mutex_lock(&reader.lock);
    reader.keeps_no_more = true;
    pthread_mutex_unlock(&reader.lock);
}

// Takes the pieces that follow one in the file and in the window too, as far as there is room for them.
static size_t take_more(const struct armload_piece * first) {
    size_t bytes = (size_t) armload_piece_bytes(first);
    for (const struct armload_piece * last = first; bytes < REQUEST_BYTES; last++) {
        const struct armload_piece * piece = piece_at(reader.next);
        if (piece != last + 1 || piece->place != ARMLOAD_IN_WINDOW || piece->begin != last->end
            || piece->slot != last->slot + 1 || !is_free(piece->slot)) {
            break;
        }
        reader.in_slot[piece->slot] = reader.next++;
        bytes += (size_t) armload_piece_bytes(piece);
    }
    return bytes;
}

// Returns the next position that has to be read and can be; NOTHING if there is none now.
static uint64_t take(void) {
    if (reader.next < reader.passed) {
        reader.next = reader.passed; // a pass may leave weights out, as one whose output nobody reads
    }
    // What all stays in memory is at most a whole pass ahead.
    while (reader.next - reader.passed < reader.pieces->count) {
        struct armload_piece * piece = piece_at(reader.next);
        if (piece->place == ARMLOAD_IN_WINDOW) {
            if (!is_free(piece->slot)) {
                return NOTHING;
            }
            reader.in_slot[piece->slot] = reader.next;
            return reader.next++;
        }
        if (piece->place == ARMLOAD_MAPPED && piece->resident) {
            if (!claim(piece)) {
                keep_no_more(piece);
            } else if (piece->place != ARMLOAD_CACHED) {
                return reader.next++;
            }
        }
        reader.next++;
    }
    return NOTHING;
}

static void read_at(uint64_t position) {
    const struct armload_piece * piece        = piece_at(position);
    const bool                   is_in_window = piece->place == ARMLOAD_IN_WINDOW;
    const size_t                 bytes = is_in_window ? take_more(piece) : (size_t) armload_piece_bytes(piece);
    const struct armload_turn    turn  = armload_begin_turn((int64_t) bytes, now_ns());
    pthread_mutex_unlock(&reader.lock);
    const bool done = is_in_window ? read_into_window(piece, &turn) : read_into_memory(piece, &turn);
    pthread_mutex_lock(&reader.lock);
    armload_end_turn(&turn, now_ns());
    if (!done) {
        armload_no_direct_way();
    }
}

static void read_request(struct armload_request request) {
    const struct armload_turn turn = armload_begin_turn((int64_t) request.bytes, now_ns());
    pthread_mutex_unlock(&reader.lock);
    const bool done = read_into(request.into, &request.from, &turn, request.needed);
    if (request.moved > 0) {
        memmove(request.into + request.move_to, request.into + request.move_from, request.moved);
    }
    pthread_mutex_lock(&reader.lock);
    armload_end_turn(&turn, now_ns());
    if (!done) {
        armload_no_direct_way();
    }
    if (--*request.waiting == 0) {
        pthread_cond_signal(&reader.filled);
    }
}

static void * run(void * its_read) {
    uint64_t * const position = its_read;
    pthread_mutex_lock(&reader.lock);
    while (!reader.stops) {
        if (requests.first < requests.end) {
            read_request(requests.each[requests.first++]);
            continue;
        }
        *position = take();
        if (arrived() >= reader.needed) {
            pthread_cond_signal(&reader.filled);
        }
        if (*position == NOTHING) {
            pthread_cond_wait(&reader.room, &reader.lock);
        } else {
            read_at(*position);
            *position = NOTHING;
        }
    }
    pthread_mutex_unlock(&reader.lock);
    return NULL;
}

static bool can_all_be_read_directly(const struct armload_pieces * pieces) {
    for (size_t number = 0; number < pieces->count; number++) {
        if (pieces->each[number].direct < 0) {
            return false;
        }
    }
    return true;
}

bool armload_start_reader(struct armload_pieces * pieces, bool has_swap) {
    armload_choose_ways(can_all_be_read_directly(pieces));
    reader.pieces       = pieces;
    reader.has_swap     = has_swap;
    reader.stops        = false;
    reader.lacks_slots  = false;
    reader.next         = 0;
    reader.passed       = 0;
    reader.needed       = 0;
    reader.thread_count = 0;
    reader.in_slot      = armload_zeroed((size_t) pieces->slot_count + 1, sizeof(*reader.in_slot));
    for (int slot = 0; slot < pieces->slot_count; slot++) {
        reader.in_slot[slot] = NOTHING;
    }
    for (int number = 0; number < MOST_THREADS; number++) {
        reader.reads[number] = NOTHING;
        if (pthread_create(&reader.threads[number], NULL, run, &reader.reads[number]) != 0) {
            break;
        }
        reader.thread_count++;
    }
    return reader.thread_count > 0;
}

void armload_stop_reader(void) {
    pthread_mutex_lock(&reader.lock);
    reader.stops = true;
    pthread_cond_broadcast(&reader.room);
    pthread_mutex_unlock(&reader.lock);
    for (int number = 0; number < reader.thread_count; number++) {
        pthread_join(reader.threads[number], NULL);
    }
    pthread_mutex_lock(&reader.lock);
    free(reader.in_slot);
    reader.in_slot      = NULL;
    reader.thread_count = 0;
    requests.first = requests.end = 0;
    pthread_mutex_unlock(&reader.lock);
}

bool armload_reader_lacks_slots(void) {
    pthread_mutex_lock(&reader.lock);
    const bool lacks = reader.lacks_slots;
    pthread_mutex_unlock(&reader.lock);
    return lacks;
}

void armload_await_piece(uint64_t position) {
    pthread_mutex_lock(&reader.lock);
    if (arrived() < position) {
        const int64_t start_ns = now_ns();
        reader.needed          = position;
        while (arrived() < position) {
            pthread_cond_wait(&reader.filled, &reader.lock);
        }
        reader.wait_ns += now_ns() - start_ns;
    }
    pthread_mutex_unlock(&reader.lock);
}

void armload_passed_piece(uint64_t position) {
    pthread_mutex_lock(&reader.lock);
    reader.passed = position;
    pthread_cond_broadcast(&reader.room);
    pthread_mutex_unlock(&reader.lock);
}

void armload_read_soon(const struct armload_request * request) {
    pthread_mutex_lock(&reader.lock);
    if (requests.end == requests.room && requests.first > 0) {
        requests.end -= requests.first;
        memmove(requests.each, requests.each + requests.first, requests.end * sizeof(*requests.each));
        requests.first = 0;
    }
    if (requests.end == requests.room) {
        requests.room = 2 * requests.room + 64;
        requests.each = armload_resized(requests.each, requests.room * sizeof(*requests.each));
    }
    requests.each[requests.end++] = *request;
    ++*request->waiting;
    pthread_cond_signal(&reader.room);
    pthread_mutex_unlock(&reader.lock);
}

bool armload_are_read(const int * waiting) {
    pthread_mutex_lock(&reader.lock);
    const bool done = *waiting == 0;
    pthread_mutex_unlock(&reader.lock);
    return done;
}

void armload_await_requests(const int * waiting) {
    pthread_mutex_lock(&reader.lock);
    if (*waiting > 0) {
        const int64_t start_ns = now_ns();
        while (*waiting > 0) {
            // This thread has a core, which another one would have to be given first.
            if (requests.first < requests.end) {
                read_request(requests.each[requests.first++]);
            } else {
                pthread_cond_wait(&reader.filled, &reader.lock);
            }
        }
        reader.wait_ns += now_ns() - start_ns;
    }
    pthread_mutex_unlock(&reader.lock);
}

int64_t armload_storage_wait_ns(void) {
    pthread_mutex_lock(&reader.lock);
    const int64_t wait_ns = reader.wait_ns;
    pthread_mutex_unlock(&reader.lock);
    return wait_ns;
}

struct armload_ways armload_reader_ways(void) {
    pthread_mutex_lock(&reader.lock);
    const struct armload_ways found = armload_ways();
    pthread_mutex_unlock(&reader.lock);
    return found;
}

struct armload_held armload_held(void) {
    pthread_mutex_lock(&reader.lock);
    const struct armload_held held = reader.held;
    pthread_mutex_unlock(&reader.lock);
    return held;
}

static bool is_read_now(size_t number) {
    for (int thread = 0; thread < reader.thread_count; thread++) {
        if (reader.reads[thread] != NOTHING && reader.reads[thread] % reader.pieces->count == number) {
            return true;
        }
    }
    return false;
}

// A thread may be computing with these very bytes, and need not be waited for: one mapping replaces the other at
// once, and both hold the same bytes. A sanitizer takes that for a data race; in a function of its own, nothing else
// is suppressed with it.
static void exchange_for_file(const struct armload_piece * piece) {
    show_file(piece);
}

// The kernel reads it from the file, until it is given a slot of the window.
static int64_t give_up(struct armload_piece * piece) {
    const int64_t bytes = armload_piece_bytes(piece);
    reader.held.bytes[piece->place] -= bytes;
    reader.held.released_bytes += bytes;
    reader.lacks_slots = true;
    piece->resident    = false;
    piece->place       = ARMLOAD_MAPPED;
    exchange_for_file(piece);
    return bytes;
}

// What remains of a tensor's resident part is its beginning.
static int64_t give_up_last(const struct armload_tensor * tensor) {
    for (size_t number = tensor->end_piece; number-- > tensor->first_piece;) {
        struct armload_piece * piece = &reader.pieces->each[number];
        if (piece->place >= ARMLOAD_LOCKED) {
            return is_read_now(number) ? 0 : give_up(piece);
        }
    }
    return 0;
}

// Returns how many bytes are still wanted.
static int64_t give_up_shares(int64_t bytes, bool of_all) {
    for (int64_t found = 1; bytes > 0 && found > 0;) {
        found = 0;
        for (int index = 0; index < reader.pieces->tensor_count && bytes > 0; index++) {
            const struct armload_tensor * tensor = &reader.pieces->tensors[index];
            if (of_all || armload_window_takes_more(reader.pieces, tensor)) {
                const int64_t given = give_up_last(tensor);
                bytes -= given;
                found += given;
            }
        }
    }
    return bytes;
}

void armload_release_held(int64_t bytes) {
    pthread_mutex_lock(&reader.lock);
    reader.keeps_no_more = true;
    give_up_shares(give_up_shares(bytes, false), true);
    pthread_mutex_unlock(&reader.lock);
}
