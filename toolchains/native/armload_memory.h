// How much memory this process may still take.

#pragma once

#include <stdbool.h>
#include <stdint.h>

struct armload_memory {
    int64_t total_bytes;
    int64_t available_bytes; // without swapping; page cache can be reclaimed
    bool    has_swap;
};

// The machine's memory, or what the tightest control group leaves of it. Returns false where the
// kernel does not tell.
bool armload_read_memory(struct armload_memory * memory);

// What this process has locked, as the kernel counts it; 0 where it does not tell.
int64_t armload_locked_bytes(void);
