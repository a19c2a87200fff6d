// slow_link: passes the clients of a port of its own on to a port of this machine, as a link would.
//
//     slow_link PORT DELAY_NS BYTES_PER_S
//
// Writes its own port, a line, and ends with its standard input. Every byte arrives DELAY_NS after
// the link had time for it. It sleeps in between, and comes before all other programs where it may,
// so that programs that never sleep neither wait for it nor lose much of their cores to it.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_WAYS = 32, PARTS = 1024, PART_BYTES = 16384 };

// Bytes that travel; they arrive at due_ns.
struct part {
    int64_t due_ns;
    int     size, sent;
    char    bytes[PART_BYTES];
};

// One direction of a connection, with a ring of parts.
struct way {
    int           source, sink, is_over;
    int64_t       free_ns; // when the link has sent what it has taken
    unsigned      first, count;
    struct part * parts;
};

static struct way ways[MOST_WAYS];
static int        way_count;

static void fail(const char * what) {
    perror(what);
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static int prepared(int made) {
    const int yes = 1;
    if (made < 0 || setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)) != 0) {
        fail("a connection");
    }
    return made;
}

static void add(int source, int sink) {
    if (way_count == MOST_WAYS) {
        errno = EMFILE;
        fail("a further connection");
    }
    struct way * way = &ways[way_count++];
    way->source      = source;
    way->sink        = sink;
    way->parts       = calloc(PARTS, sizeof(struct part));
    if (way->parts == NULL) {
        fail("memory");
    }
}

static void take(struct way * way, int64_t delay_ns, double bytes_per_ns) {
    struct part * part = &way->parts[(way->first + way->count) % PARTS];
    const ssize_t size = recv(way->source, part->bytes, PART_BYTES, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    const int64_t now = now_ns();
    way->is_over      = size <= 0;
    way->free_ns      = (way->free_ns > now ? way->free_ns : now) + (int64_t) ((size > 0 ? size : 0) / bytes_per_ns);
    part->due_ns      = way->free_ns + delay_ns;
    part->size        = size > 0 ? (int) size : 0;
    part->sent        = 0;
    way->count++;
}

// Gives what is due; returns how long nothing more is, or -1 where nothing travels.
static int64_t give(struct way * way) {
    while (way->count > 0) {
        struct part * part    = &way->parts[way->first];
        const int64_t left_ns = part->due_ns - now_ns();
        if (left_ns > 0) {
            return left_ns;
        }
        if (part->size == 0) {
            shutdown(way->sink, SHUT_WR);
        } else {
            const ssize_t size =
                send(way->sink, part->bytes + part->sent, (size_t) (part->size - part->sent), MSG_NOSIGNAL);
            if (size < 0 && errno != EINTR) {
                way->count = 0;
                return -1;
            }
            part->sent += size > 0 ? (int) size : 0;
        }
        if (part->sent == part->size) {
            way->first = (way->first + 1) % PARTS;
            way->count--;
        }
    }
    return -1;
}

int main(int count, char ** words) {
    if (count != 4) {
        fprintf(stderr, "slow_link PORT DELAY_NS BYTES_PER_S\n");
        return 2;
    }
    const int64_t      delay_ns     = atoll(words[2]);
    const double       bytes_per_ns = atof(words[3]) / 1e9;
    struct sockaddr_in there        = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct sockaddr_in here         = there;
    socklen_t          size         = sizeof(here);
    there.sin_port                  = htons((uint16_t) atoi(words[1]));

    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *) &here, size) != 0 || listen(listener, 8) != 0 ||
        getsockname(listener, (struct sockaddr *) &here, &size) != 0) {
        fail("a port");
    }
    const struct sched_param before_all = { .sched_priority = 1 };
    if (sched_setscheduler(0, SCHED_FIFO, &before_all) != 0) {
        perror("slow_link: it competes with other programs for the CPU");
    }
    printf("%d\n", ntohs(here.sin_port));
    fflush(stdout);

    for (;;) {
        struct pollfd asked[MOST_WAYS + 2] = { { 0, POLLIN, 0 }, { listener, POLLIN, 0 } };
        int64_t       left_ns              = -1;
        for (int i = 0; i < way_count; i++) {
            const int64_t its_ns = give(&ways[i]);
            left_ns              = its_ns >= 0 && (left_ns < 0 || its_ns < left_ns) ? its_ns : left_ns;
        }
        for (int i = 0; i < way_count; i++) {
            const int is_open = !ways[i].is_over && ways[i].count < PARTS;
            asked[2 + i]      = (struct pollfd){ is_open ? ways[i].source : -1, POLLIN, 0 };
        }
        const struct timespec left = { left_ns / 1000000000, left_ns % 1000000000 };
        if (ppoll(asked, (nfds_t) (2 + way_count), left_ns < 0 ? NULL : &left, NULL) < 0) {
            fail("waiting");
        }
        const int known = way_count;
        char      ignored;
        if (asked[0].revents && read(0, &ignored, 1) <= 0) {
            return 0;
        }
        if (asked[1].revents) {
            const int client = prepared(accept(listener, NULL, NULL));
            const int server = prepared(socket(AF_INET, SOCK_STREAM, 0));
            if (connect(server, (struct sockaddr *) &there, sizeof(there)) == 0) {
                add(client, server);
                add(server, client);
            } else {
                close(client);
                close(server);
            }
        }
        for (int i = 0; i < known; i++) {
            if (asked[2 + i].revents) {
                take(&ways[i], delay_ns, bytes_per_ns);
            }
        }
    }
}
