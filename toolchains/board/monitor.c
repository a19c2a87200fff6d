/* Tells the board's clock and its state over a port of its loopback, which it prints:
 *
 *     monitor
 *
 * One client at a time. For each byte it gets a line: for "c" the clock alone, and at once; for "s"
 *
 *     {"at_ns":N,"memory_available_bytes":N,"cpu_khz":[...],"celsius":N}
 *
 * It ends when nobody has asked for a minute. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "armload_memory.h"
#include "armload_sensors.h"

enum { PATIENCE_MS = 60 * 1000 };

static int fail(const char *what)
{
    fprintf(stderr, "monitor: %s: %s\n", what, strerror(errno));
    return 1;
}

static size_t append_memory(char *line, size_t length)
{
    struct armload_memory memory;
    if (!armload_read_memory(&memory))
        return length;
    return armload_append(line, length, ",\"memory_available_bytes\":%" PRId64, memory.available_bytes);
}

static bool answer(int client, char asked)
{
    char line[ARMLOAD_LINE_BYTES];
    const int64_t now_ns = armload_clock_ns(CLOCK_MONOTONIC);
    size_t length = armload_append(line, 0, "{\"at_ns\":%" PRId64, now_ns);
    if (asked == 's') {
        armload_sense(now_ns);
        length = append_memory(line, length);
        length = armload_append_sensors(line, length);
    } else {
        length = armload_append(line, length, "}\n");
    }
    return send(client, line, length, MSG_NOSIGNAL) == (ssize_t)length;
}

static bool is_readable(int file)
{
    struct pollfd wanted = {.fd = file, .events = POLLIN};
    return poll(&wanted, 1, PATIENCE_MS) > 0;
}

int main(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, size) || listen(listener, 4)
        || getsockname(listener, (struct sockaddr *)&address, &size))
        return fail("cannot listen");
    armload_open_sensors();
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    while (is_readable(listener)) {
        const int client = accept(listener, NULL, NULL);
        if (client < 0)
            continue;
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        char asked;
        while (is_readable(client) && recv(client, &asked, 1, 0) == 1 && answer(client, asked))
            ;
        close(client);
    }
    return 0;
}
