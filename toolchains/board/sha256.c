/* SHA-256 of a file or of parts of it, for boards that have no tool for it, or a slow one:
 *
 *     sha256 [[-b BLOCK] [-s SKIP] [-n LENGTH] [-l] [-c] FILE]
 *
 * Prints one sum, or with -b one for each BLOCK bytes, the last of which may be short; with -l the
 * sum of what would be printed instead. Begins after SKIP bytes and ends after LENGTH bytes. With
 * -c the file is first put out of the page cache, so that what is read is what the storage holds.
 * Blocks are read and summed on all CPUs at once. Without a file it is standard input that is
 * summed. Memory: one buffer for each CPU, and the sums. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sha256.h"

enum { BUFFER_BYTES = 1 << 18, TRIAL_BYTES = 1 << 15, MOST_THREADS = 8 };

typedef struct {
    const char *name;
    Compress compress;
    uint64_t begin, end, block, count;
    char (*sums)[SUM_DIGITS + 1];
    uint64_t taken; /* blocks, atomically */
} Task;

static void fail(const char *what)
{
    fprintf(stderr, "sha256: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t number(const char *text)
{
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno || *end || end == text) {
        fprintf(stderr, "sha256: %s is no number\n", text);
        exit(2);
    }
    return value;
}

static size_t read_some(int file, const char *name, uint8_t *buffer, uint64_t wanted)
{
    ssize_t got;
    if (wanted > BUFFER_BYTES)
        wanted = BUFFER_BYTES;
    while ((got = read(file, buffer, (size_t)wanted)) < 0)
        if (errno != EINTR)
            fail(name);
    return (size_t)got;
}

static int opened(const char *name)
{
    int file = open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        fail(name);
    posix_fadvise(file, 0, 0, POSIX_FADV_SEQUENTIAL);
    return file;
}

/* Each thread has a descriptor of its own: the kernel reads ahead for each, not for the file. */
static void *sum_blocks(void *given)
{
    Task *task = given;
    int file = opened(task->name);
    uint8_t *buffer = malloc(BUFFER_BYTES);
    if (!buffer)
        fail("memory");
    uint64_t index;
    while ((index = __atomic_fetch_add(&task->taken, 1, __ATOMIC_RELAXED)) < task->count) {
        uint64_t at = task->begin + index * task->block;
        uint64_t left = task->end - at < task->block ? task->end - at : task->block;
        if (lseek(file, (off_t)at, SEEK_SET) < 0)
            fail(task->name);
        Sum sum;
        begin(&sum);
        for (size_t got; left && (got = read_some(file, task->name, buffer, left)); left -= got)
            add(&sum, task->compress, buffer, got);
        finish(&sum, task->compress, task->sums[index]);
    }
    free(buffer);
    close(file);
    return NULL;
}

static void sum_on_all_cpus(Task *task)
{
    pthread_t threads[MOST_THREADS];
    cpu_set_t cpus;
    int started = 0;
    uint64_t wanted = sched_getaffinity(0, sizeof cpus, &cpus) ? 1 : (uint64_t)CPU_COUNT(&cpus);
    if (wanted > MOST_THREADS)
        wanted = MOST_THREADS;
    if (wanted > task->count)
        wanted = task->count;
    while ((uint64_t)started + 1 < wanted &&
           !pthread_create(&threads[started], NULL, sum_blocks, task))
        started++;
    sum_blocks(task);
    while (started)
        pthread_join(threads[--started], NULL);
}

static void print_of_file(Task *task, uint64_t length, int cold, int list)
{
    struct stat status;
    int file = opened(task->name);
    if (fstat(file, &status))
        fail(task->name);
    if (cold) {
        fsync(file);
        posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    }
    close(file);
    task->end = (uint64_t)status.st_size;
    if (task->begin > task->end)
        task->begin = task->end;
    if (length < task->end - task->begin)
        task->end = task->begin + length;
    int whole = !task->block;
    if (whole)
        task->block = task->end - task->begin + 1;
    task->count = (task->end - task->begin) / task->block;
    task->count += whole || (task->end - task->begin) % task->block;
    task->sums = malloc((task->count + 1) * sizeof *task->sums);
    if (!task->sums)
        fail("memory");
    sum_on_all_cpus(task);
    Sum sum;
    begin(&sum);
    for (uint64_t i = 0; i < task->count; i++) {
        task->sums[i][SUM_DIGITS] = '\n';
        if (list)
            add(&sum, task->compress, (const uint8_t *)task->sums[i], SUM_DIGITS + 1);
        else
            fwrite(task->sums[i], 1, SUM_DIGITS + 1, stdout);
    }
    if (list) {
        finish(&sum, task->compress, task->sums[0]);
        puts(task->sums[0]);
    }
    free(task->sums);
}

static void print_of_input(Compress compress)
{
    static uint8_t buffer[BUFFER_BYTES];
    char digits[SUM_DIGITS + 1];
    Sum sum;
    begin(&sum);
    for (size_t got; (got = read_some(STDIN_FILENO, "standard input", buffer, BUFFER_BYTES));)
        add(&sum, compress, buffer, got);
    finish(&sum, compress, digits);
    puts(digits);
}

int main(int count, char **words)
{
    Task task = {0};
    uint64_t length = UINT64_MAX;
    int cold = 0, list = 0, option, wrong = 0;
    while ((option = getopt(count, words, "b:s:n:lc")) != -1) {
        if (option == 'b')
            wrong |= !(task.block = number(optarg));
        else if (option == 's')
            task.begin = number(optarg);
        else if (option == 'n')
            length = number(optarg);
        else if (option == 'l')
            list = 1;
        else if (option == 'c')
            cold = 1;
        else
            wrong = 1;
    }
    if (wrong || count - optind > 1 || (count == optind && optind > 1)) {
        fputs("usage: sha256 [[-b BLOCK] [-s SKIP] [-n LENGTH] [-l] [-c] FILE]\n", stderr);
        return 2;
    }
    static uint8_t trial[TRIAL_BYTES];
    task.compress = chosen(trial, TRIAL_BYTES);
    task.name = words[optind];
    if (task.name)
        print_of_file(&task, length, cold, list);
    else
        print_of_input(task.compress);
    if (fflush(stdout))
        fail("standard output");
    return 0;
}
