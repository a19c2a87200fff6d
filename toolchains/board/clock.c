/* Finds out the real frequency of cores, where the kernel shows the one that was asked for:
 *
 *     clock CORE...
 *
 * For each core a line of JSON with the quickest of some windows:
 *
 *     {"core":N,"cycles":N,"ns":N,"by":"counter","shown_khz":N}
 *
 * The cycles are those of the CPU's counter (perf_event_open); where nobody may read it, those of a
 * chain of instructions of which each takes one cycle and waits for the one before ("loop"). The
 * frequency that the kernel shows is read at the end, while the core is still busy. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "armload_sensors.h"

enum {
    WARM_UP_NS = 50 * 1000 * 1000, /* governors take some time to raise the frequency */
    WINDOWS = 20,
    LINKS = 256, /* so many that what ends the loop does not count */
    ROUNDS = 8192,
};

#define FOUR(link) link link link link
#define SIXTY_FOUR(link) FOUR(FOUR(FOUR(link)))

/* Exclusive or is what no core computes before it is due, as some do with sums. */
static uint64_t chain(uint64_t value, uint64_t other)
{
    for (int round = 0; round < ROUNDS; round++) {
#if defined(__aarch64__)
        __asm__ volatile(FOUR(SIXTY_FOUR("eor %0, %0, %1\n")) : "+r"(value) : "r"(other));
#elif defined(__x86_64__)
        __asm__ volatile(FOUR(SIXTY_FOUR("xor %1, %0\n")) : "+r"(value) : "r"(other) : "cc");
#else
#error "no chain for this CPU"
#endif
    }
    return value;
}

static int open_counter(void)
{
    struct perf_event_attr wanted = {
        .type = PERF_TYPE_HARDWARE,
        .size = sizeof wanted,
        .config = PERF_COUNT_HW_CPU_CYCLES,
        .exclude_kernel = 1,
        .exclude_hv = 1,
    };
    return (int)syscall(SYS_perf_event_open, &wanted, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static uint64_t count(int counter)
{
    uint64_t cycles = 0;
    return counter >= 0 && read(counter, &cycles, sizeof cycles) == sizeof cycles ? cycles : 0;
}

static long shown_khz(unsigned core)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/cpufreq/scaling_cur_freq", core);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    long khz = 0;
    armload_read_number(file, &khz);
    if (file >= 0)
        close(file);
    return khz;
}

static void measure(unsigned core)
{
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(core, &only);
    if (sched_setaffinity(0, sizeof only, &only)) /* switched off, or not for this process */
        return;
    const int counter = open_counter();
    uint64_t value = 1;
    const int64_t until_ns = armload_clock_ns(CLOCK_MONOTONIC) + WARM_UP_NS;
    while (armload_clock_ns(CLOCK_MONOTONIC) < until_ns)
        value = chain(value, core);
    uint64_t cycles = (uint64_t)LINKS * ROUNDS;
    int64_t ns = INT64_MAX;
    bool counted = false;
    for (int window = 0; window < WINDOWS; window++) {
        const uint64_t before = count(counter);
        const int64_t start_ns = armload_clock_ns(CLOCK_MONOTONIC);
        value = chain(value, core);
        const int64_t took_ns = armload_clock_ns(CLOCK_MONOTONIC) - start_ns;
        const uint64_t passed = count(counter) - before;
        /* A counter of another kind of core shows nothing, or less than must have passed. */
        const bool trusted = passed >= (uint64_t)LINKS * ROUNDS / 2;
        if (took_ns > 0 && took_ns < ns) { /* the others were interrupted */
            ns = took_ns;
            counted = trusted;
            cycles = trusted ? passed : (uint64_t)LINKS * ROUNDS;
        }
    }
    printf("{\"core\":%u,\"cycles\":%" PRIu64 ",\"ns\":%" PRId64 ",\"by\":\"%s\",\"shown_khz\":%ld}\n",
           core, cycles, ns, counted ? "counter" : "loop", shown_khz(core));
    if (counter >= 0)
        close(counter);
    if (value == 0x5eed) /* its value must be of use */
        fputc('\n', stderr);
}

int main(int words_count, char **words)
{
    for (int i = 1; i < words_count; i++) {
        char *end;
        const long core = strtol(words[i], &end, 10);
        if (end == words[i] || *end != '\0' || core < 0 || core >= CPU_SETSIZE) {
            fputs("usage: clock CORE...\n", stderr);
            return 2;
        }
        measure((unsigned)core);
    }
    return 0;
}
