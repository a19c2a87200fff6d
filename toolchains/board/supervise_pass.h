/* Passes connections on to the server, which listens on a socket in the service's folder, or, while
 * versions change, to one that runs beside it in versions/try. While there is none, they wait.
 *
 * A connection carries one request: its header is awaited before the server hears of it, and asks the
 * server to close the connection afterwards. So the number of connections is that of the requests
 * being answered. */
#pragma once

#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/un.h>

#include "supervise_settings.h"

enum {
    MOST_CONNECTIONS = 128,
    BUFFER_BYTES = 1 << 14, /* of each direction; also the longest header */
    HEADER_MS = 15000,
    HELD_MS = 600000, /* how long a request waits for a server */
    IDLE_MS = 660000, /* the server's own limit is shorter */
    LINGER_MS = 2000, /* a client reads to the end before its connection goes */
    RETRY_MS = 100,
};

/* Between supervise and the process that passes connections on: where new requests go, and how many
 * each of the two has. */
enum { NOWHERE, BEHIND, BESIDE, PLACES };

static const struct sockaddr_un SOCKETS[PLACES] = {
    [BEHIND] = {.sun_family = AF_UNIX, .sun_path = PRIVATE_SOCKET},
    [BESIDE] = {.sun_family = AF_UNIX, .sun_path = "versions/try/" PRIVATE_SOCKET},
};

static struct {
    atomic_int to, busy[PLACES];
} *passing;

struct stream {
    char bytes[BUFFER_BYTES];
    size_t begin, end;
    bool is_over, is_told; /* nothing more comes; and the other side knows */
};

static struct connection {
    int client, server; /* -1: none */
    int place;          /* the server's */
    bool is_whole, lingers; /* its header is there; only what the client sends yet is dropped */
    int64_t since_ms, news_ms;
    struct stream *up, *down;
} connections[MOST_CONNECTIONS];

/* Apart from what is looked at each time. */
static struct stream streams[MOST_CONNECTIONS][2];

static void leave_server(struct connection *connection)
{
    if (connection->server < 0)
        return;
    close(connection->server);
    passing->busy[connection->place]--;
    connection->server = -1;
}

static void forget(struct connection *connection)
{
    leave_server(connection);
    close(connection->client);
    connection->client = -1;
}

static void linger(struct connection *connection, int64_t now)
{
    shutdown(connection->client, SHUT_WR);
    leave_server(connection);
    connection->lingers = true;
    connection->since_ms = now;
}

static void refuse_request(struct connection *connection, const char *status, int64_t now)
{
    char text[256];
    int length = snprintf(text, sizeof text,
                          "HTTP/1.1 %s\r\nRetry-After: 10\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status);
    send(connection->client, text, (size_t)length, MSG_NOSIGNAL | MSG_DONTWAIT);
    linger(connection, now);
}

static bool has_room(const struct stream *stream)
{
    return !stream->is_over && stream->end < BUFFER_BYTES;
}

/* Reads what there is room for; false where the connection is broken. */
static bool take(int file, struct stream *stream)
{
    if (!has_room(stream))
        return true;
    ssize_t count = recv(file, stream->bytes + stream->end, BUFFER_BYTES - stream->end, MSG_DONTWAIT);
    if (count < 0)
        return errno == EAGAIN || errno == EINTR;
    stream->is_over = count == 0;
    stream->end += (size_t)count;
    return true;
}

static bool give(int file, struct stream *stream)
{
    if (stream->begin < stream->end) {
        ssize_t count = send(file, stream->bytes + stream->begin, stream->end - stream->begin, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0)
            return errno == EAGAIN || errno == EINTR;
        stream->begin += (size_t)count;
        if (stream->begin == stream->end)
            stream->begin = stream->end = 0;
    }
    if (stream->is_over && stream->begin == stream->end && !stream->is_told) {
        shutdown(file, SHUT_WR);
        stream->is_told = true;
    }
    return true;
}

/* Puts "Connection: close" into a header that is whole. What the client says of the connection gets
 * another name, of the same length. */
static void ask_to_close(struct stream *stream, size_t header)
{
    static const char ours[] = "Connection: close\r\n", theirs[] = "\nconnection:";
    for (size_t i = 0; i + sizeof theirs - 1 <= header; i++)
        if (strncasecmp(stream->bytes + i, theirs, sizeof theirs - 1) == 0)
            memcpy(stream->bytes + i + 1, "x-was-then", strlen("x-was-then"));
    const char *line = memchr(stream->bytes, '\n', header + 2);
    size_t place = (size_t)(line - stream->bytes) + 1;
    memmove(stream->bytes + place + sizeof ours - 1, stream->bytes + place, stream->end - place);
    memcpy(stream->bytes + place, ours, sizeof ours - 1);
    stream->end += sizeof ours - 1;
}

static void read_header(struct connection *connection, int64_t now)
{
    enum { RESERVED = 32 }; /* for what is put in */
    struct stream *up = connection->up;
    ssize_t count = recv(connection->client, up->bytes + up->end, BUFFER_BYTES - RESERVED - up->end, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count <= 0) {
        forget(connection);
        return;
    }
    up->end += (size_t)count;
    const char *end = memmem(up->bytes, up->end, "\r\n\r\n", 4);
    if (end != NULL) {
        ask_to_close(up, (size_t)(end - up->bytes));
        connection->is_whole = true;
        connection->since_ms = now;
    } else if (up->end >= BUFFER_BYTES - RESERVED) {
        refuse_request(connection, "431 Request Header Fields Too Large", now);
    }
}

/* Where the server does not take it now, that is tried again. */
static void reach_server(struct connection *connection, int64_t now)
{
    int place = passing->to;
    if (place == NOWHERE)
        return;
    passing->busy[place]++; /* before looking again: a server that is about to be ended is not asked unseen */
    int file = passing->to == place ? socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    if (file >= 0 && connect(file, (const struct sockaddr *)&SOCKETS[place], sizeof *SOCKETS) == 0) {
        connection->server = file;
        connection->place = place;
        connection->news_ms = now;
        return;
    }
    passing->busy[place]--;
    if (file >= 0)
        close(file);
}

static void pass(struct connection *connection, int64_t now)
{
    bool is_whole = take(connection->client, connection->up) && give(connection->server, connection->up);
    bool is_answered = take(connection->server, connection->down) && give(connection->client, connection->down);
    connection->news_ms = now;
    if (is_answered && connection->down->is_told)
        linger(connection, now);
    else if (!is_answered || (!is_whole && connection->down->begin == connection->down->end && connection->down->is_over))
        forget(connection);
    else if (!is_whole) { /* the server reads no more, and may have answered why */
        connection->up->begin = connection->up->end = 0;
        connection->up->is_over = connection->up->is_told = true;
    }
}

static void attend(struct connection *connection, short client, short server, int64_t now)
{
    static char dropped[4096];
    if (connection->lingers) {
        bool is_over = client != 0 && recv(connection->client, dropped, sizeof dropped, MSG_DONTWAIT) <= 0;
        if (is_over || now - connection->since_ms >= LINGER_MS)
            forget(connection);
    } else if (!connection->is_whole) {
        if (now - connection->since_ms >= HEADER_MS) /* also where it comes byte by byte */
            forget(connection);
        else if (client != 0)
            read_header(connection, now);
        if (connection->is_whole && !connection->lingers) /* or it would wait like one without a server */
            reach_server(connection, now);
    } else if (connection->server < 0) {
        reach_server(connection, now);
        if (client != 0)
            forget(connection);
        else if (connection->server < 0 && now - connection->since_ms >= HELD_MS)
            refuse_request(connection, "503 Service Unavailable", now);
    } else if (client & POLLERR) {
        forget(connection);
    } else if (client != 0 || server != 0) {
        pass(connection, now);
    } else if (now - connection->news_ms >= IDLE_MS) {
        forget(connection);
    }
}

/* One that is free; else that which has been without a request for the longest time. */
static struct connection *place_for(void)
{
    struct connection *oldest = NULL;
    for (struct connection *each = connections; each < connections + MOST_CONNECTIONS; each++) {
        if (each->client < 0)
            return each;
        if (!each->is_whole && (oldest == NULL || each->since_ms < oldest->since_ms))
            oldest = each;
    }
    return oldest;
}

static void welcome(int listener, int64_t now)
{
    struct connection *place = place_for();
    int file = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (file < 0)
        return;
    if (place == NULL) {
        static const char full[] = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 10\r\nConnection: close\r\n\r\n";
        send(file, full, sizeof full - 1, MSG_NOSIGNAL);
        close(file);
        return;
    }
    if (place->client >= 0)
        forget(place);
    setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    place->client = file;
    place->is_whole = place->lingers = false;
    place->since_ms = place->news_ms = now;
    place->up->begin = place->up->end = place->down->begin = place->down->end = 0;
    place->up->is_over = place->up->is_told = place->down->is_over = place->down->is_told = false;
}

static short wanted(const struct stream *in, const struct stream *out)
{
    return (short)((has_room(in) ? POLLIN : 0) | (out->begin < out->end ? POLLOUT : 0));
}

/* Fills what is waited for; returns for how long. */
static int look_at_connections(struct pollfd *file, struct connection **active, int *count)
{
    int wait_ms = 1000;
    *count = 0;
    for (struct connection *each = connections; each < connections + MOST_CONNECTIONS; each++) {
        if (each->client < 0)
            continue;
        bool is_held = each->is_whole && !each->lingers && each->server < 0;
        short client = !each->is_whole || each->lingers ? POLLIN : is_held ? POLLRDHUP : wanted(each->up, each->down);
        short server = wanted(each->down, each->up);
        *file++ = (struct pollfd){.fd = each->client, .events = client};
        /* One that has ended is not news before there is room for what it said. */
        *file++ = (struct pollfd){.fd = server != 0 ? each->server : -1, .events = server};
        active[(*count)++] = each;
        wait_ms = is_held ? RETRY_MS : wait_ms;
    }
    return wait_ms;
}

static _Noreturn void pass_for_ever(const int *listeners, int listener_count)
{
    static struct pollfd files[MOST_LISTENERS + 2 * MOST_CONNECTIONS];
    static struct connection *active[MOST_CONNECTIONS];
    for (int i = 0; i < MOST_CONNECTIONS; i++)
        connections[i] = (struct connection){.client = -1, .server = -1, .up = &streams[i][0], .down = &streams[i][1]};
    for (int i = 0; i < listener_count; i++)
        files[i] = (struct pollfd){.fd = listeners[i], .events = POLLIN};
    for (;;) {
        int count;
        struct pollfd *news = files + listener_count;
        int wait_ms = look_at_connections(news, active, &count);
        poll(files, (nfds_t)(listener_count + 2 * count), wait_ms);
        int64_t now = now_ms();
        for (int i = 0; i < count; i++, news += 2)
            attend(active[i], news[0].revents, news[1].revents, now);
        for (int i = 0; i < listener_count; i++)
            if (files[i].revents != 0)
                welcome(listeners[i], now);
    }
}
