#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "armload_window.h"

#include "armload_mapping.h"
#include "armload_storage_error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CACHE_STEP_BYTES = 128 << 10 };

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

void armload_show_file(const struct armload_piece * piece) {
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
            armload_show_file(piece);
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
            armload_show_file(piece);
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
        if (piece->place != ARMLOAD_IN_WINDOW) {
            continue;
        }
        while (first < end && pieces->each[first].begin == last
               && pieces->each[first].place == ARMLOAD_IN_WINDOW) {
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

static bool read_into(char * into, const struct armload_piece * piece, const struct armload_turn * turn) {
    const size_t bytes      = (size_t) turn->bytes;
    bool         is_refused = false;
    int          file       = turn->way == ARMLOAD_DIRECT ? piece->direct : piece->file;
    if (turn->compared) {
        drop_from_cache(piece, bytes);
    }
    for (size_t done = 0; done < bytes;) {
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

bool armload_read_into_window(const struct armload_piece * piece, const struct armload_turn * turn) {
    return read_into(slot_of(piece), piece, turn);
}

void armload_read_into_cache(const struct armload_piece * piece) {
    madvise(piece->begin, bytes_of(piece), MADV_RANDOM);
    // The kernel cuts each request to the size of its readahead window.
    for (char * begin = piece->begin; begin < piece->end; begin += CACHE_STEP_BYTES) {
        const size_t left = (size_t) (piece->end - begin);
        madvise(begin, left < CACHE_STEP_BYTES ? left : CACHE_STEP_BYTES, MADV_WILLNEED);
    }
}

bool armload_claim_memory(const struct armload_piece * piece) {
    return mmap(piece->begin, bytes_of(piece), PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

bool armload_read_into_memory(const struct armload_piece * piece, const struct armload_turn * turn) {
    const bool done = read_into(piece->begin, piece, turn);
    mprotect(piece->begin, bytes_of(piece), PROT_READ);
    return done;
}

void * armload_map_again(const char * weights, size_t bytes) {
    struct armload_mapping mapping;
    if (!armload_find_mapping(weights, &mapping)) {
        return NULL;
    }
    const size_t into  = (size_t) ((uintptr_t) weights % (uintptr_t) sysconf(_SC_PAGESIZE));
    char * const again = mmap(NULL, into + bytes, PROT_READ, MAP_SHARED, mapping.file,
                              weights - mapping.base - (off_t) into);
    if (again == MAP_FAILED) {
        return NULL;
    }
    madvise(again, into + bytes, MADV_RANDOM);
    return again + into;
}
