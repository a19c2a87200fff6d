// The model files that llama.cpp has mapped.

#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct armload_mapping {
    char *  base; // where the file's first byte would be
    char *  begin;
    char *  end;
    int     file;   // opened anew: the engine closes its own
    int     direct; // the same past the page cache; -1 where the file system cannot do that
    int64_t file_bytes;
};

// Whether ARMLOAD_WEIGHTS asks for weights that are streamed.
bool armload_streams(void);

// Returns false for an address in no mapping.
bool armload_find_mapping(const void * address, struct armload_mapping * mapping);

// Bytes of all mappings.
size_t armload_mapped_bytes(void);

// Bytes of the mappings in which nothing is used.
size_t armload_unused_mapped_bytes(bool (*is_used)(const char * begin, const char * end));
