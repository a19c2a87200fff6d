#include "armload_ways.h"

#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_BYTES  = 8 << 20,
    FIRST_PAIRS  = 12,
    FASTER_PAIRS = 10, // by chance alone, so many of twelve are in 1 of 50 tries
    LATER_PAIRS  = 4,
    COMPARE_ONE  = 16, // of so many blocks, once the page cache was chosen: two
    BLOCKS_KEPT  = 16, // more than requests are under way
    MOST_TURNS   = 16,
};

static const double CLEARLY = 1.10;

struct block {
    enum armload_way way;
    int64_t          begun_bytes;
    int64_t          done_bytes;
    double           ns; // its share of the time, by the requests that were under way together
    bool             full;
};

static struct {
    const char * reads;
    const char * reason;
    bool         is_forced;
    uint64_t     number; // of the block that takes requests
    struct block blocks[BLOCKS_KEPT];
    uint64_t     under_way[MOST_TURNS]; // blocks
    int          under_way_count;
    int64_t      last_ns;
    double       speeds[FIRST_PAIRS]; // of the page cache, direct I/O being 1
    int          pairs;
    double       bytes[ARMLOAD_WAYS];
    double       ns[ARMLOAD_WAYS];
    int64_t      bytes_per_s[ARMLOAD_WAYS];
} ways;

static bool is_comparing(void) {
    return ways.reason == NULL;
}

static bool reads_buffered(void) {
    return strcmp(ways.reads, "buffered") == 0;
}

static bool compares(uint64_t number) {
    return is_comparing() || (reads_buffered() && !ways.is_forced && number % COMPARE_ONE >= COMPARE_ONE - 2);
}

static enum armload_way way_of(uint64_t number) {
    if (compares(number)) {
        // A B, B A: what changes in one direction meets both ways alike.
        return (number + number / 2 + number / COMPARE_ONE) % 2 == 0 ? ARMLOAD_DIRECT : ARMLOAD_BUFFERED;
    }
    return reads_buffered() ? ARMLOAD_BUFFERED : ARMLOAD_DIRECT;
}

static void begin_block(uint64_t number) {
    ways.number                       = number;
    ways.blocks[number % BLOCKS_KEPT] = (struct block){ .way = way_of(number) };
}

static void decide(const char * reads, const char * reason) {
    ways.reads  = reads;
    ways.reason = reason;
    ways.pairs  = 0;
    for (int way = 0; way < ARMLOAD_WAYS; way++) {
        ways.bytes_per_s[way] = ways.ns[way] > 0 ? (int64_t) (1e9 * ways.bytes[way] / ways.ns[way]) : 0;
        ways.bytes[way] = ways.ns[way] = 0;
    }
}

void armload_choose_ways(bool has_direct) {
    const char * wanted = getenv("ARMLOAD_READS");
    if (ways.reads != NULL) {
        return;
    }
    ways.reads = "both";
    ways.is_forced = wanted != NULL && (strcmp(wanted, "direct") == 0 || strcmp(wanted, "buffered") == 0);
    if (!has_direct) {
        armload_no_direct_way();
    } else if (ways.is_forced) {
        decide(strcmp(wanted, "direct") == 0 ? "direct" : "buffered", "ARMLOAD_READS says so");
    }
    begin_block(0);
}

void armload_no_direct_way(void) {
    ways.is_forced = true; // there is nothing to compare with
    decide("buffered", "the file system has no direct I/O");
}

static int ascending(const void * one, const void * other) {
    const double a = *(const double *) one, b = *(const double *) other;
    return (a > b) - (a < b);
}

static double median_speed(void) {
    qsort(ways.speeds, (size_t) ways.pairs, sizeof(*ways.speeds), ascending);
    return (ways.speeds[(ways.pairs - 1) / 2] + ways.speeds[ways.pairs / 2]) / 2;
}

static void judge(void) {
    if (is_comparing() && ways.pairs == FIRST_PAIRS) {
        const double speed  = median_speed();
        const bool   clear  = speed >= CLEARLY && ways.speeds[FIRST_PAIRS - FASTER_PAIRS] > 1;
        decide(clear ? "buffered" : "direct",
               clear ? "the page cache was clearly faster in nearly all comparisons"
                     : "the page cache was not clearly faster in nearly all comparisons");
    } else if (!is_comparing() && ways.pairs == LATER_PAIRS) {
        if (median_speed() < 1) {
            decide("direct", "the page cache had been faster and became slower");
        }
        ways.pairs = 0;
    }
}

static double rate_of(const struct block * block) {
    return block->ns > 0 ? (double) block->done_bytes / block->ns : 0;
}

static bool is_done(const struct block * block) {
    return block->full && block->done_bytes == block->begun_bytes;
}

// Both blocks of a pair may end in any order.
static void note_block(uint64_t number) {
    const struct block * blocks[] = { &ways.blocks[(number & ~UINT64_C(1)) % BLOCKS_KEPT],
                                      &ways.blocks[(number | 1) % BLOCKS_KEPT] };
    if ((number | 1) > ways.number || !is_done(blocks[0]) || !is_done(blocks[1]) || blocks[0]->way == blocks[1]->way) {
        return;
    }
    const struct block * direct   = blocks[blocks[0]->way != ARMLOAD_DIRECT];
    const struct block * buffered = blocks[blocks[0]->way == ARMLOAD_DIRECT];
    if (rate_of(direct) <= 0 || rate_of(buffered) <= 0) {
        return;
    }
    ways.bytes[ARMLOAD_DIRECT] += (double) direct->done_bytes;
    ways.bytes[ARMLOAD_BUFFERED] += (double) buffered->done_bytes;
    ways.ns[ARMLOAD_DIRECT] += direct->ns;
    ways.ns[ARMLOAD_BUFFERED] += buffered->ns;
    ways.speeds[ways.pairs++] = rate_of(buffered) / rate_of(direct);
    judge();
}

static void count_time(int64_t now_ns) {
    for (int turn = 0; turn < ways.under_way_count; turn++) {
        ways.blocks[ways.under_way[turn] % BLOCKS_KEPT].ns += (double) (now_ns - ways.last_ns) / ways.under_way_count;
    }
    ways.last_ns = now_ns;
}

struct armload_turn armload_begin_turn(int64_t bytes, int64_t now_ns) {
    count_time(now_ns);
    struct block * block = &ways.blocks[ways.number % BLOCKS_KEPT];
    if (block->full) {
        begin_block(ways.number + 1);
        block = &ways.blocks[ways.number % BLOCKS_KEPT];
    }
    block->begun_bytes += bytes;
    block->full = block->begun_bytes >= BLOCK_BYTES;
    ways.under_way[ways.under_way_count++] = ways.number;
    return (struct armload_turn){
        .way      = block->way,
        .block    = ways.number,
        .bytes    = bytes,
        .compared = compares(ways.number),
    };
}

void armload_end_turn(const struct armload_turn * turn, int64_t now_ns) {
    count_time(now_ns);
    for (int index = 0; index < ways.under_way_count; index++) {
        if (ways.under_way[index] == turn->block) {
            ways.under_way[index] = ways.under_way[--ways.under_way_count];
            break;
        }
    }
    ways.blocks[turn->block % BLOCKS_KEPT].done_bytes += turn->bytes;
    if (turn->compared) {
        note_block(turn->block);
    }
}

struct armload_ways armload_ways(void) {
    struct armload_ways found = { .reads = ways.reads == NULL ? "direct" : ways.reads, .reason = ways.reason };
    memcpy(found.bytes_per_s, ways.bytes_per_s, sizeof(found.bytes_per_s));
    return found;
}
