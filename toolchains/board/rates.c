/* What a board's memory and storage give, and a file put out of the page cache:
 *
 *     rates memory THREADS AVAILABLE_BYTES [CLOCK]
 *                                            reads a buffer far larger than the caches, best of
 *                                            several passes; CLOCK is a file with the memory's
 *                                            frequency in Hz, as it is after each pass
 *     rates storage FILE                     reads a file in order, as weights are streamed: with
 *                                            direct I/O or through the page cache, what is faster
 *     rates evict FILE                       drops a file's clean pages, and looks whether they
 *                                            are gone
 *
 * Prints one JSON object. `memory` takes about 0.4 s and at most a quarter of the available memory,
 * `storage` little more than two seconds, or 512 MiB. Both say what other programs did meanwhile. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

enum { MOST_THREADS = 256, LEAST_PASSES = 3, BLOCK_BYTES = 1 << 20, BLOCK_ALIGNMENT = 4096 };

/* As in armload_reader.c. */
enum { READERS = 4 };

static const size_t LEAST_BUFFER = 64 * MIB, LARGEST_BUFFER = 256 * MIB, READ_AT_MOST = 256 * MIB,
                    FIRST_BYTES = 32 * MIB;
static const double MEMORY_S = 0.4, STORAGE_S = 1.0, FIRST_S = 0.25;

/* The page cache costs CPU time for each page, so a little faster is not enough. */
static const double CLEARLY_FASTER = 1.1;

/* What a program has mapped or locked stays in the page cache, and is not read again. */
static const double OF_STORAGE = 0.95;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int fail(const char *what)
{
    fprintf(stderr, "rates: %s: %s\n", what, strerror(errno));
    return 1;
}

static size_t largest_cache_bytes(void)
{
    size_t largest = 0;
    for (int index = 0; index < 8; index++) {
        char path[80], unit = 0;
        unsigned long long size = 0;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
        FILE *file = fopen(path, "re");
        if (!file)
            continue;
        if (fscanf(file, "%llu%c", &size, &unit) >= 1) {
            size *= unit == 'M' ? MIB : unit == 'K' ? 1024 : 1;
            largest = size > largest ? size : largest;
        }
        fclose(file);
    }
    return largest;
}

struct others {
    double at_s, cpu_s;
    unsigned long long read_bytes;
};

/* proc_pid_stat(5); a thread of the kernel's own is what we, or others, keep busy. */
static const unsigned long KERNEL_THREAD = 0x00200000;

static double cpu_s_of(const char *process)
{
    char path[64], text[1024];
    unsigned long flags;
    unsigned long long own_user, own_system;
    long long childrens_user, childrens_system;
    snprintf(path, sizeof path, "/proc/%.20s/stat", process);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0; /* it has ended meanwhile */
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    const char *after_name = strrchr(text, ')');
    if (!after_name || sscanf(after_name + 1,
                              " %*c %*d %*d %*d %*d %*d %lu %*u %*u %*u %*u %llu %llu %lld %lld",
                              &flags, &own_user, &own_system, &childrens_user,
                              &childrens_system) != 5)
        return 0;
    if (flags & KERNEL_THREAD)
        return 0;
    return ((double)(own_user + own_system) + (double)(childrens_user + childrens_system)) /
           (double)sysconf(_SC_CLK_TCK);
}

/* All programs but this one. The time of one that ends is its parent's from then on. */
static struct others look_at_others(void)
{
    struct others found = {now_s(), 0, 0};
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    while (processes && (entry = readdir(processes)))
        if (isdigit((unsigned char)*entry->d_name) && atol(entry->d_name) != (long)getpid())
            found.cpu_s += cpu_s_of(entry->d_name);
    if (processes)
        closedir(processes);
    char line[128];
    FILE *file = fopen("/proc/vmstat", "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "pgpgin %llu", &found.read_bytes) == 1)
            found.read_bytes *= 1024;
    if (file && ferror(file))
        found.read_bytes = 0;
    if (file)
        fclose(file);
    return found;
}

/* In cores: how many of them others kept busy. */
static double others_cpu(const struct others *before, const struct others *after)
{
    double took_s = after->at_s - before->at_s, cpu_s = after->cpu_s - before->cpu_s;
    return took_s > 0 && cpu_s > 0 ? cpu_s / took_s : 0;
}

static struct {
    pthread_barrier_t barrier;
    uint64_t *words;
    size_t words_each;
    int done;
} shared;

/* Volatile, so that no compiler leaves out a sum that nobody looks at. All threads write it. */
static volatile uint64_t seen;

static void read_part(size_t part)
{
    const uint64_t *words = shared.words + part * shared.words_each;
    uint64_t sum = 0;
    for (size_t i = 0; i < shared.words_each; i++)
        sum += words[i];
    __atomic_store_n(&seen, sum, __ATOMIC_RELAXED);
}

/* Memory that was never written is one page of zeros, which lies in the cache. */
static void fill_part(size_t part)
{
    uint64_t *words = shared.words + part * shared.words_each;
    for (size_t i = 0; i < shared.words_each; i++)
        words[i] = i + part;
}

static void *work(void *argument)
{
    size_t part = (size_t)(uintptr_t)argument;
    fill_part(part);
    pthread_barrier_wait(&shared.barrier);
    for (;;) {
        pthread_barrier_wait(&shared.barrier);
        if (shared.done)
            return NULL;
        read_part(part);
        pthread_barrier_wait(&shared.barrier);
    }
}

static bool read_count(const char *text, const char *what, long long *count)
{
    char *end;
    *count = strtoll(text, &end, 10);
    if (!*end && end != text && *count >= 1)
        return true;
    fprintf(stderr, "rates: %s is no number of %s\n", text, what);
    return false;
}

static long long clock_hz(const char *path)
{
    long long hz = 0;
    FILE *file = path ? fopen(path, "re") : NULL;
    if (file && fscanf(file, "%18lld", &hz) != 1)
        hz = 0;
    if (file)
        fclose(file);
    return hz > 0 ? hz : 0;
}

static int memory(const char *threads_text, const char *available_text, const char *clock)
{
    long long asked_for, available;
    if (!read_count(threads_text, "threads", &asked_for) || !read_count(available_text, "bytes", &available))
        return 2;
    long threads = asked_for < MOST_THREADS ? (long)asked_for : MOST_THREADS;
    size_t wanted = 4 * largest_cache_bytes(), allowed = (size_t)available / 4;
    wanted = wanted > LEAST_BUFFER ? wanted : LEAST_BUFFER;
    wanted = wanted < LARGEST_BUFFER ? wanted : LARGEST_BUFFER;
    wanted = wanted < allowed ? wanted : allowed;
    shared.words_each = wanted / sizeof(uint64_t) / (size_t)threads;
    size_t bytes = shared.words_each * sizeof(uint64_t) * (size_t)threads;
    if (bytes < 4 * MIB) {
        errno = ENOMEM;
        return fail("memory");
    }
    double began_s = now_s(), best_s = 0;
    shared.words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (shared.words == MAP_FAILED)
        return fail("memory");
    pthread_barrier_init(&shared.barrier, NULL, (unsigned)threads);
    static pthread_t ids[MOST_THREADS];
    for (long thread = 1; thread < threads; thread++) {
        /* The others already wait for all of them: there is no way on but the end. */
        if ((errno = pthread_create(&ids[thread], NULL, work, (void *)(uintptr_t)thread)))
            return fail("threads");
    }
    fill_part(0);
    pthread_barrier_wait(&shared.barrier);
    struct others before = look_at_others();
    int passes = 0;
    long long best_hz = 0;
    for (double last_s = 0; passes < LEAST_PASSES || now_s() - began_s + last_s < MEMORY_S;
         passes++) {
        /* Before the barrier: whoever is woken last may find the others' work done. */
        double start_s = now_s();
        pthread_barrier_wait(&shared.barrier);
        read_part(0);
        pthread_barrier_wait(&shared.barrier);
        last_s = now_s() - start_s;
        if (!passes || last_s < best_s) {
            best_s = last_s;
            best_hz = clock_hz(clock);
        }
    }
    struct others after = look_at_others();
    shared.done = 1;
    pthread_barrier_wait(&shared.barrier);
    for (long thread = 1; thread < threads; thread++)
        pthread_join(ids[thread], NULL);
    printf("{\"memory_bytes_per_s\":%.0f,\"memory_threads\":%ld,\"memory_buffer_bytes\":%zu,"
           "\"memory_passes\":%d,\"memory_others_cpu\":%.3f",
           (double)bytes / best_s, threads, bytes, passes, others_cpu(&before, &after));
    if (best_hz)
        printf(",\"memory_clock_hz\":%lld", best_hz);
    puts("}");
    return fflush(stdout) != 0;
}

/* One way of reading a file, by as many threads as read streamed weights. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* the last request of a pass has ended, or all of them */
    int file, error, busy;  /* requests that are under way */
    bool direct, settled, done;
    size_t size, next; /* of the file; where the next request begins */
    size_t total, own; /* that count, and all that were read */
    double began_s, took_s;
} reading = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static ssize_t read_block(size_t at, void *block)
{
    ssize_t got;
    do
        got = pread(reading.file, block, BLOCK_BYTES, (off_t)at);
    while (got < 0 && errno == EINTR);
    return got;
}

static void drop_from_cache(int file)
{
    fdatasync(file);
    posix_fadvise(file, 0, (off_t)(READ_AT_MOST + 2 * FIRST_BYTES), POSIX_FADV_DONTNEED);
}

/* Called with the lock held. A short file is read again: quick storage needs more to be timed.
 * Pages that a request reads cannot be dropped, so a pass ends before the next one begins. */
static void begin_pass_if_at_end(void)
{
    while (reading.next && reading.next >= reading.size && !reading.done) {
        if (reading.busy && !reading.direct) {
            pthread_cond_wait(&reading.changed, &reading.lock);
            continue;
        }
        if (!reading.direct)
            drop_from_cache(reading.file);
        reading.next = 0;
        pthread_cond_broadcast(&reading.changed);
    }
}

/* Called with the lock held, from the end of one request to the end of another. */
static void note_request(ssize_t got)
{
    reading.error = got < 0 ? errno : reading.error;
    reading.total += got > 0 ? (size_t)got : 0;
    reading.took_s = now_s() - reading.began_s;
    /* Storage that is awake, or has saved up a burst, begins quicker than it goes on. Nothing may
     * take time here: the kernel would go on reading ahead while no clock runs. */
    if (!reading.settled && (reading.total >= FIRST_BYTES || reading.took_s >= FIRST_S)) {
        reading.settled = true;
        reading.total = 0;
        reading.began_s += reading.took_s;
        reading.took_s = 0;
    }
    reading.done = got <= 0 || reading.total >= READ_AT_MOST || reading.took_s >= STORAGE_S;
}

static void *read_blocks(void *block)
{
    pthread_mutex_lock(&reading.lock);
    for (;;) {
        begin_pass_if_at_end();
        if (reading.done)
            break;
        size_t at = reading.next;
        reading.next += BLOCK_BYTES;
        reading.busy++;
        pthread_mutex_unlock(&reading.lock);
        ssize_t got = read_block(at, block);
        pthread_mutex_lock(&reading.lock);
        reading.busy--;
        reading.own += got > 0 ? (size_t)got : 0;
        if (!reading.done)
            note_request(got);
        if (!reading.busy || reading.done)
            pthread_cond_broadcast(&reading.changed);
    }
    pthread_mutex_unlock(&reading.lock);
    return NULL;
}

struct read_rate {
    double bytes_per_s, others_cpu;
    size_t bytes;
    bool is_of_storage; /* and not of pages that stayed in the cache */
    unsigned long long others_bytes;
};

/* Returns false, with errno, where the file cannot be read in that way. */
static bool measure_reading(const char *name, bool direct, char *blocks, struct read_rate *rate)
{
    struct stat facts;
    pthread_t threads[READERS];
    int started = 0;
    reading.file = open(name, O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
    if (reading.file < 0)
        return false;
    reading.size = fstat(reading.file, &facts) ? 0 : (size_t)facts.st_size;
    reading.direct = direct;
    reading.error = 0;
    reading.settled = reading.done = false;
    reading.next = reading.total = reading.own = 0;
    if (!direct)
        drop_from_cache(reading.file);
    struct others before = look_at_others();
    reading.began_s = now_s();
    for (; started < READERS; started++)
        if (pthread_create(&threads[started], NULL, read_blocks, blocks + started * BLOCK_BYTES))
            break;
    for (int thread = 0; thread < started; thread++)
        pthread_join(threads[thread], NULL);
    struct others after = look_at_others();
    close(reading.file);
    errno = reading.error ? reading.error : ENODATA;
    if (reading.error || !reading.total || reading.took_s <= 0)
        return false;
    /* 0 where the kernel does not tell: then nothing says that a read was of the storage. */
    unsigned long long every = 0;
    if (before.read_bytes && after.read_bytes > before.read_bytes)
        every = after.read_bytes - before.read_bytes;
    *rate = (struct read_rate){
        .bytes_per_s = (double)reading.total / reading.took_s,
        .others_cpu = others_cpu(&before, &after),
        .bytes = reading.total,
        .is_of_storage = (double)every >= OF_STORAGE * (double)reading.own,
        .others_bytes = every > reading.own ? every - reading.own : 0,
    };
    return true;
}

static int storage(const char *name)
{
    char *blocks = aligned_alloc(BLOCK_ALIGNMENT, (size_t)READERS * BLOCK_BYTES);
    struct read_rate direct, cached;
    if (!blocks)
        return fail("storage");
    bool has_direct = measure_reading(name, true, blocks, &direct);
    bool has_cached = measure_reading(name, false, blocks, &cached);
    free(blocks);
    if (!has_cached)
        return fail(name);
    bool takes_direct =
        has_direct && (!cached.is_of_storage ||
                       cached.bytes_per_s <= CLEARLY_FASTER * direct.bytes_per_s);
    const struct read_rate *taken = takes_direct ? &direct : &cached;
    printf("{\"storage_read_bytes_per_s\":%.0f,\"storage_way\":\"%s\",\"storage_read_bytes\":%zu,"
           "\"storage_others_cpu\":%.3f,\"storage_others_read_bytes\":%llu",
           taken->bytes_per_s, takes_direct ? "direct" : "cache dropped", taken->bytes,
           taken->others_cpu, taken->others_bytes);
    if (has_direct)
        printf(",\"storage_other_way_bytes_per_s\":%.0f",
               takes_direct ? cached.bytes_per_s : direct.bytes_per_s);
    puts("}");
    return fflush(stdout) != 0;
}

static int evict(const char *name)
{
    int file = open(name, O_RDONLY | O_CLOEXEC);
    struct stat facts;
    if (file < 0 || fstat(file, &facts))
        return fail(name);
    fdatasync(file);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), left = 0, size = (size_t)facts.st_size;
    static unsigned char present[1 << 16];
    for (size_t at = 0; at < size; at += sizeof present * page) {
        size_t length = size - at < sizeof present * page ? size - at : sizeof present * page;
        void *mapped = mmap(NULL, length, PROT_READ, MAP_SHARED, file, (off_t)at);
        if (mapped == MAP_FAILED || mincore(mapped, length, present))
            return fail(name);
        for (size_t i = 0; i * page < length; i++)
            left += present[i] & 1 ? page : 0;
        munmap(mapped, length);
    }
    printf("{\"size_bytes\":%zu,\"left_bytes\":%zu}\n", size, left);
    return fflush(stdout) != 0 || left > size / 100;
}

int main(int count, char **words)
{
    if ((count == 4 || count == 5) && !strcmp(words[1], "memory"))
        return memory(words[2], words[3], words[4]); /* words end with NULL */
    if (count == 3 && !strcmp(words[1], "storage"))
        return storage(words[2]);
    if (count == 3 && !strcmp(words[1], "evict"))
        return evict(words[2]);
    fputs("usage: rates memory THREADS AVAILABLE_BYTES [CLOCK] | storage FILE | evict FILE\n", stderr);
    return 2;
}
