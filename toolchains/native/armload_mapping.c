// llama-mmap.cpp calls these in place of the calls that they are named after.

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "armload_mapping.h"

#include "armload_storage_error.h"
#include "armload_stream.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_FILES = 256 };

static struct {
    pthread_mutex_t        lock;
    int                    count;
    struct armload_mapping each[MOST_FILES];
} mappings = { .lock = PTHREAD_MUTEX_INITIALIZER };

bool armload_streams(void) {
    static int wanted = -1;
    if (wanted < 0) {
        const char * value = getenv("ARMLOAD_WEIGHTS");
        wanted             = value != NULL && strcmp(value, "streamed") == 0;
    }
    return wanted;
}

bool armload_find_mapping(const void * address, struct armload_mapping * mapping) {
    const char * wanted = address;
    bool         found  = false;
    pthread_mutex_lock(&mappings.lock);
    for (int index = 0; index < mappings.count && !found; index++) {
        const struct armload_mapping * each = &mappings.each[index];
        found = wanted >= each->begin && wanted < each->end;
        if (found) {
            *mapping = *each;
        }
    }
    pthread_mutex_unlock(&mappings.lock);
    return found;
}

size_t armload_mapped_bytes(void) {
    size_t bytes = 0;
    pthread_mutex_lock(&mappings.lock);
    for (int index = 0; index < mappings.count; index++) {
        bytes += (size_t) (mappings.each[index].end - mappings.each[index].begin);
    }
    pthread_mutex_unlock(&mappings.lock);
    return bytes;
}

size_t armload_unused_mapped_bytes(bool (*is_used)(const char * begin, const char * end)) {
    size_t bytes = 0;
    pthread_mutex_lock(&mappings.lock);
    for (int index = 0; index < mappings.count; index++) {
        const struct armload_mapping * each = &mappings.each[index];
        bytes += is_used(each->begin, each->end) ? 0 : (size_t) (each->end - each->begin);
    }
    pthread_mutex_unlock(&mappings.lock);
    return bytes;
}

// Without readahead, which would go on into weights that are in memory already. Some file systems promise
// direct I/O, and read through the page cache all the same.
static int open_again(int file, int flags) {
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    const int again = open(path, O_RDONLY | O_CLOEXEC | flags);
    const int own   = again < 0 && flags == 0 ? fcntl(file, F_DUPFD_CLOEXEC, 3) : again;
    posix_fadvise(own, 0, 0, POSIX_FADV_RANDOM);
    return own;
}

static void note_mapping(char * address, size_t bytes, int file) {
    struct stat status;
    const int   own = open_again(file, 0);
    if (own < 0 || fstat(own, &status) != 0) {
        return;
    }
    const int direct = open_again(file, O_DIRECT);
    // For what is read when it is used: of a token embedding, single rows.
    madvise(address, bytes, MADV_RANDOM);
    pthread_mutex_lock(&mappings.lock);
    const bool fits = mappings.count < MOST_FILES;
    if (fits) {
        mappings.each[mappings.count++] = (struct armload_mapping) {
            .base = address, .begin = address, .end = address + bytes, .file = own,
            .direct = direct, .file_bytes = status.st_size,
        };
    }
    pthread_mutex_unlock(&mappings.lock);
    if (!fits) {
        close(own);
        close(direct);
    }
}

// Populating a file that exceeds the memory reads all of it, and loses most of it again.
void * armload_mmap(void * address, size_t bytes, int protection, int flags, int file, off_t offset) {
    if (!armload_streams()) {
        return mmap(address, bytes, protection, flags, file, offset);
    }
    armload_explain_storage_errors();
    void * mapped = mmap(address, bytes, protection, flags & ~MAP_POPULATE, file, offset);
    if (mapped != MAP_FAILED && offset == 0) {
        note_mapping(mapped, bytes, file);
    }
    return mapped;
}

int armload_posix_madvise(void * address, size_t bytes, int advice) {
    return armload_streams() ? 0 : posix_madvise(address, bytes, advice);
}

int armload_posix_fadvise(int file, off_t offset, off_t bytes, int advice) {
    return armload_streams() ? 0 : posix_fadvise(file, offset, bytes, advice);
}

static void remove_mapping(struct armload_mapping * each) {
    close(each->file);
    close(each->direct);
    *each = mappings.each[--mappings.count];
}

// Of a file of which nothing is used, the engine unmaps whole pages and leaves what follows them.
static void note_removal(char * begin, char * end) {
    const ptrdiff_t page = sysconf(_SC_PAGESIZE);
    pthread_mutex_lock(&mappings.lock);
    for (int index = 0; index < mappings.count; index++) {
        struct armload_mapping * each = &mappings.each[index];
        if (end <= each->begin || begin >= each->end) {
            continue;
        }
        if (begin <= each->begin && each->end - end < page) {
            remove_mapping(each);
        } else if (begin <= each->begin) {
            each->begin = end;
        } else {
            each->end = begin;
        }
        break;
    }
    pthread_mutex_unlock(&mappings.lock);
}

// The engine unmaps what lies before and after its tensors, and the rest when it frees the model.
int armload_munmap(void * address, size_t bytes) {
    if (armload_streams()) {
        char * begin = address;
        armload_stream_forget(begin, begin + bytes);
        note_removal(begin, begin + bytes);
    }
    return munmap(address, bytes);
}
