// Memory for our own lists. A process that gets none for them ends: nothing could be recorded or
// streamed any more.

#pragma once

#include <stdio.h>
#include <stdlib.h>

static inline void * armload_had(void * items) {
    if (items == NULL) {
        perror("armload: there is no memory for the trace or the list of weights");
        abort();
    }
    return items;
}

static inline void * armload_resized(void * items, size_t bytes) {
    return armload_had(realloc(items, bytes));
}

static inline void * armload_zeroed(size_t count, size_t bytes) {
    return armload_had(calloc(count > 0 ? count : 1, bytes));
}
