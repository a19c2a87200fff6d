/* What the connection from one board to another gives, and the clocks of a board:
 *
 *     link serve ADDRESS THREADS
 *                            answers one client at a port that it prints; one that hangs up
 *                            without a question does not count
 *     link ask HOST PORT THREADS
 *                            measures the way to such a server, and prints
 *                            {"round_trip_s":N,"exchange_s":N,"to_bytes_per_s":N,
 *                            "from_bytes_per_s":N}
 *     link clock             prints {"monotonic_ns":N,"since_boot_ns":N}
 *
 * A question is a letter and a size of eight bytes: "p" asks for as many bytes as a small message of
 * ggml's RPC has, "t" is followed by so many bytes, which are answered when all have come, "f" asks
 * for so many. "e" announces so many exchanges, as nodes of distributed-llama do them: so many threads
 * on each side compute for a moment, then each side sends a message, and asks the kernel for that of
 * the other over and over. Where threads leave no core free, whatever passes messages on waits for
 * one, and an exchange takes several times as long as half of a round trip on an idle board; the time
 * is the mean of many. The round trip is the median of many; a rate is that of a transfer which takes long
 * enough to tell. All of it takes some two seconds, on a slow connection five. The server ends after
 * half a minute at most. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    MESSAGE_BYTES = 300,
    SLICE_BYTES   = 1088, /* of 1,024 activations in Q8_0 between two nodes, twice */
    MOST_THREADS  = 256,
    MOST_PINGS    = 200,
    LEAST_PINGS   = 5,
    LIMIT_S       = 30,
    SILENCE_S     = 10,
    BLOCK_BYTES   = 1 << 16,
};

static const uint64_t FIRST_BYTES = 1 << 16, MOST_BYTES = UINT64_C(1) << 28;
static const double PINGS_S = 0.5, LONG_ENOUGH_S = 0.25, COMPUTING_S = 0.002;

static char block[BLOCK_BYTES];
static int threads = 1;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int fail(const char *what)
{
    fprintf(stderr, "link: %s: %s\n", what, strerror(errno));
    return 1;
}

static bool put(int line, const void *from, uint64_t size)
{
    for (uint64_t done = 0; done < size;) {
        const ssize_t count = send(line, (const char *)from + done, size - done, MSG_NOSIGNAL);
        if (count <= 0)
            return false;
        done += (uint64_t)count;
    }
    return true;
}

static bool get(int line, void *into, uint64_t size)
{
    for (uint64_t done = 0; done < size;) {
        const ssize_t count = recv(line, (char *)into + done, size - done, 0);
        if (count <= 0) {
            if (count == 0)
                errno = ECONNRESET;
            return false;
        }
        done += (uint64_t)count;
    }
    return true;
}

/* Moves so many bytes that mean nothing. */
static bool put_any(int line, uint64_t size)
{
    for (; size > BLOCK_BYTES; size -= BLOCK_BYTES)
        if (!put(line, block, BLOCK_BYTES))
            return false;
    return put(line, block, size);
}

static bool get_any(int line, uint64_t size)
{
    for (; size > BLOCK_BYTES; size -= BLOCK_BYTES)
        if (!get(line, block, BLOCK_BYTES))
            return false;
    return get(line, block, size);
}

static atomic_bool is_over;

static void *compute(void *unused)
{
    while (!atomic_load_explicit(&is_over, memory_order_relaxed))
        ;
    return unused;
}

static bool get_without_sleep(int line, uint64_t size)
{
    const double begin_s = now_s();
    for (uint64_t done = 0; done < size;) {
        const ssize_t count = recv(line, block, size - done, MSG_DONTWAIT);
        if (count > 0)
            done += (uint64_t)count;
        else if (count == 0 || (errno != EAGAIN && errno != EINTR) || now_s() - begin_s > SILENCE_S)
            return false;
    }
    return true;
}

static bool exchange(int line, uint64_t rounds, double *mean_s)
{
    pthread_t others[MOST_THREADS];
    int started = 0;
    atomic_store(&is_over, false);
    while (started < threads - 1 && !pthread_create(&others[started], NULL, compute, NULL))
        started++;
    double sum_s = 0;
    bool is_fine = true;
    for (uint64_t round = 0; is_fine && round < rounds; round++) {
        double begin_s = now_s();
        while (now_s() - begin_s < COMPUTING_S)
            ;
        begin_s = now_s();
        is_fine = put(line, block, SLICE_BYTES) && get_without_sleep(line, SLICE_BYTES);
        sum_s += now_s() - begin_s;
    }
    atomic_store(&is_over, true);
    for (int i = 0; i < started; i++)
        pthread_join(others[i], NULL);
    *mean_s = sum_s / (double)rounds;
    return is_fine;
}

static bool answer(int client, char question, uint64_t size)
{
    double unused_s;
    switch (question) {
    case 'e': return size >= LEAST_PINGS && size <= MOST_PINGS && exchange(client, size, &unused_s);
    case 'p':
    case 't': return get_any(client, size) && put(client, block, 1);
    case 'f': return put_any(client, size);
    default: return false;
    }
}

static bool has_address(struct sockaddr_in *address, const char *host, const char *port)
{
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    if (inet_pton(AF_INET, host, &address->sin_addr) == 1)
        return true;
    errno = EINVAL;
    return false;
}

static void send_at_once(int line)
{
    const int yes = 1;
    const struct timeval silence = {.tv_sec = SILENCE_S};
    setsockopt(line, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(line, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
    setsockopt(line, SOL_SOCKET, SO_SNDTIMEO, &silence, sizeof silence);
}

static int serve(const char *host)
{
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    if (!has_address(&address, host, "0"))
        return fail(host);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) || listen(listener, 1)
        || getsockname(listener, (struct sockaddr *)&address, &size))
        return fail("cannot listen");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    alarm(LIMIT_S);
    /* Whoever forwards this port may first try whether that is permitted. */
    bool is_asked = false;
    while (!is_asked) {
        const int client = accept(listener, NULL, NULL);
        if (client < 0)
            return fail("no client");
        send_at_once(client);
        char question;
        uint64_t wanted;
        while (get(client, &question, 1) && get(client, &wanted, sizeof wanted)
               && answer(client, question, wanted))
            is_asked = true;
        close(client);
    }
    return 0;
}

static bool ask(int line, char question, uint64_t size)
{
    char words[1 + sizeof size + MESSAGE_BYTES] = {question};
    memcpy(words + 1, &size, sizeof size);
    if (question == 'p')
        return put(line, words, sizeof words) && get(line, block, 1);
    if (!put(line, words, 1 + sizeof size))
        return false;
    return question == 't' ? put_any(line, size) && get(line, block, 1) : get_any(line, size);
}

static int by_size(const void *one, const void *other)
{
    const double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static bool round_trip(int line, double *found_s)
{
    static double took_s[MOST_PINGS];
    size_t count = 0;
    const double begin_s = now_s();
    while (count < MOST_PINGS && (count < LEAST_PINGS || now_s() - begin_s < PINGS_S)) {
        const double asked_s = now_s();
        if (!ask(line, 'p', MESSAGE_BYTES))
            return false;
        took_s[count++] = now_s() - asked_s;
    }
    qsort(took_s, count, sizeof took_s[0], by_size);
    *found_s = took_s[count / 2];
    return true;
}

static bool exchange_time(int line, double round_trip_s, double *found_s)
{
    const double likely = PINGS_S / (round_trip_s + COMPUTING_S);
    const uint64_t rounds = likely < LEAST_PINGS ? LEAST_PINGS : likely > MOST_PINGS ? MOST_PINGS : (uint64_t)likely;
    char words[1 + sizeof rounds] = {'e'};
    memcpy(words + 1, &rounds, sizeof rounds);
    return put(line, words, sizeof words) && exchange(line, rounds, found_s);
}

/* The shorter time of two, where the first was long: others may have kept the cores busy. A transfer
 * takes a round trip, too. */
static bool transfer(int line, char question, uint64_t size, double round_trip_s, double *took_s)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        const double asked_s = now_s();
        if (!ask(line, question, size))
            return false;
        const double all_s = now_s() - asked_s, rest_s = all_s - round_trip_s;
        const double this_s = rest_s > all_s / 2 ? rest_s : all_s / 2;
        if (!attempt || this_s < *took_s)
            *took_s = this_s;
        if (*took_s < LONG_ENOUGH_S)
            break;
    }
    return true;
}

static bool rate(int line, char question, double round_trip_s, double *found)
{
    for (uint64_t size = FIRST_BYTES;; size *= 4) {
        double took_s;
        if (!transfer(line, question, size, round_trip_s, &took_s))
            return false;
        if (took_s >= LONG_ENOUGH_S || size >= MOST_BYTES) {
            *found = (double)size / took_s;
            return true;
        }
    }
}

static int measure(const char *host, const char *port)
{
    struct sockaddr_in address;
    double round_trip_s, exchange_s, to, from;
    if (!has_address(&address, host, port))
        return fail(host);
    const int line = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (line < 0)
        return fail("no socket");
    send_at_once(line);
    alarm(LIMIT_S);
    if (connect(line, (struct sockaddr *)&address, sizeof address)
        || !round_trip(line, &round_trip_s) || !exchange_time(line, round_trip_s, &exchange_s)
        || !rate(line, 't', round_trip_s, &to) || !rate(line, 'f', round_trip_s, &from))
        return fail("the other side does not answer");
    printf("{\"round_trip_s\":%.9f,\"exchange_s\":%.9f,\"to_bytes_per_s\":%.0f,\"from_bytes_per_s\":%.0f}\n",
           round_trip_s, exchange_s, to, from);
    return 0;
}

static int tell_clocks(void)
{
    struct timespec monotonic, boot;
    clock_gettime(CLOCK_MONOTONIC, &monotonic);
    clock_gettime(CLOCK_BOOTTIME, &boot);
    printf("{\"monotonic_ns\":%" PRId64 ",\"since_boot_ns\":%" PRId64 "}\n",
           (int64_t)monotonic.tv_sec * 1000000000 + monotonic.tv_nsec,
           (int64_t)boot.tv_sec * 1000000000 + boot.tv_nsec);
    return 0;
}

static bool has_threads(const char *word)
{
    threads = atoi(word);
    return threads >= 1 && threads <= MOST_THREADS;
}

int main(int count, char **words)
{
    if (count == 4 && !strcmp(words[1], "serve") && has_threads(words[3]))
        return serve(words[2]);
    if (count == 5 && !strcmp(words[1], "ask") && has_threads(words[4]))
        return measure(words[2], words[3]);
    if (count == 2 && !strcmp(words[1], "clock"))
        return tell_clocks();
    fputs("usage: link serve ADDRESS THREADS | ask HOST PORT THREADS | clock\n", stderr);
    return 2;
}
