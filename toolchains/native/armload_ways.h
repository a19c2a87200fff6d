// Which way weights are read: past the page cache, or through it.
//
// Direct I/O is the better one nearly everywhere, and a second's measurement may say otherwise: storage
// has bursts, and others use it. So while the weights are read for the first time, blocks of equal size are
// read in turn in both ways, and the page cache is taken only if it was clearly faster in nearly all pairs
// of neighbouring blocks. Then one pair in some is still compared, to go back when that has changed.
//
// The functions must not be called at the same time.

#pragma once

#include <stdbool.h>
#include <stdint.h>

enum armload_way { ARMLOAD_DIRECT, ARMLOAD_BUFFERED, ARMLOAD_WAYS };

// One request, from its beginning to its end.
struct armload_turn {
    enum armload_way way;
    uint64_t         block;
    int64_t          bytes;
    bool             compared;
};

struct armload_ways {
    const char * reads;  // "direct", "buffered", or "both" while they are compared
    const char * reason; // for the trace; NULL while they are compared
    int64_t      bytes_per_s[ARMLOAD_WAYS]; // 0 where it was not measured
};

// ARMLOAD_READS=direct|buffered, if that is set, decides instead.
void armload_choose_ways(bool has_direct);

struct armload_turn armload_begin_turn(int64_t bytes, int64_t now_ns);
void                armload_end_turn(const struct armload_turn * turn, int64_t now_ns);

// The file system has refused to read directly after all.
void armload_no_direct_way(void);

struct armload_ways armload_ways(void);
