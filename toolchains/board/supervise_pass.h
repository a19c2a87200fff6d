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

#include "supervise_tls.h"

enum {
    MOST_CONNECTIONS = 128,
    BUFFER_BYTES = 1 << 14, /* of each direction; also the longest header */
    HEADER_MS = 15000,
    HELD_MS = 600000, /* how long a request waits for a server */
    IDLE_MS = 660000, /* the server's own limit is shorter */
    LINGER_MS = 2000, /* a client reads to the end before its connection goes */
    RETRY_MS = 100,
    CANNOT_PASS = 1,
    HANDSHAKES = 2, /* of TLS in each turn: between them, other connections get what there is for them */
};

/* Between supervise and the process that passes connections on: where new requests go, how many each of
 * the two has, and, once for each change, what of its certificate. */
enum { NOWHERE, BEHIND, BESIDE, PLACES };

static const struct sockaddr_un SOCKETS[PLACES] = {
    [BEHIND] = {.sun_family = AF_UNIX, .sun_path = PRIVATE_SOCKET},
    [BESIDE] = {.sun_family = AF_UNIX, .sun_path = "versions/try/" PRIVATE_SOCKET},
};

static struct {
    atomic_int to, busy[PLACES], pem_changes, pem_problem;
    char certificate[SUM_DIGITS + 1]; /* its checksum; empty where none is in force */
} *passing;

struct stream {
    char bytes[BUFFER_BYTES];
    size_t begin, end;
    bool is_over, is_told; /* nothing more comes; and the other side knows */
};

static struct connection {
    struct peer client, server;
    int place;              /* the server's */
    bool is_whole, lingers; /* its header is there; only what the client sends yet is dropped */
    int64_t since_ms, news_ms;
    struct stream *up, *down;
} connections[MOST_CONNECTIONS];

static int handshakes_left;

/* Apart from what is looked at each time. */
static struct stream streams[MOST_CONNECTIONS][2];

static void leave_server(struct connection *connection)
{
    if (connection->server.socket < 0)
        return;
    close(connection->server.socket);
    passing->busy[connection->place]--;
    connection->server.socket = -1;
}

static void forget(struct connection *connection)
{
    leave_server(connection);
    leave_tls(&connection->client);
    close(connection->client.socket);
    connection->client.socket = -1;
}

static bool has_room(const struct stream *stream)
{
    return !stream->is_over && stream->end < BUFFER_BYTES;
}

/* Reads what there is room for; false where the connection is broken. */
static bool take(struct peer *peer, struct stream *stream, int64_t now)
{
    if (!has_room(stream))
        return true;
    ssize_t count = take_from(peer, stream->bytes + stream->end, BUFFER_BYTES - stream->end, now);
    if (count < 0)
        return errno == EAGAIN || errno == EINTR;
    stream->is_over = count == 0;
    stream->end += (size_t)count;
    return true;
}

static bool give(struct peer *peer, struct stream *stream, int64_t now)
{
    if (stream->begin < stream->end) {
        ssize_t count = give_to(peer, stream->bytes + stream->begin, stream->end - stream->begin, now);
        if (count < 0)
            return errno == EAGAIN || errno == EINTR;
        stream->begin += (size_t)count;
        if (stream->begin == stream->end)
            stream->begin = stream->end = 0;
    }
    if (stream->is_over && stream->begin == stream->end && !stream->is_told)
        stream->is_told = end_to(peer);
    return true;
}

/* A client whose TLS has failed is kept until the time says nothing of why. */
static void linger(struct connection *connection, int64_t now)
{
    int64_t blinded_ms = connection->client.blinded_ms;
    connection->up->begin = connection->up->end = 0;
    connection->down->is_over = true;
    leave_server(connection);
    connection->lingers = true;
    connection->since_ms = blinded_ms > now ? blinded_ms - LINGER_MS : now;
}

static void give_up(struct connection *connection, int64_t now)
{
    if (connection->client.blinded_ms > now)
        linger(connection, now);
    else
        forget(connection);
}

static void answer(struct connection *connection, const char *status, const char *text, int64_t now)
{
    struct stream *down = connection->down;
    down->end = (size_t)snprintf(down->bytes, BUFFER_BYTES,
                                 "HTTP/1.1 %s\r\nRetry-After: 10\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n"
                                 "Connection: close\r\n\r\n%s",
                                 status, strlen(text), text);
    linger(connection, now);
    give(&connection->client, down, now);
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
    struct peer *client = &connection->client;
    ssize_t count = take_from(client, up->bytes + up->end, BUFFER_BYTES - RESERVED - up->end, now);
    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count <= 0) {
        give_up(connection, now);
        return;
    }
    if (client->protocol == PLAIN && client->must_encrypt) {
        answer(connection, "400 Bad Request", "This port is encrypted: use https://, not http://.\n", now);
        return;
    }
    up->end += (size_t)count;
    const char *end = memmem(up->bytes, up->end, "\r\n\r\n", 4);
    if (end != NULL) {
        ask_to_close(up, (size_t)(end - up->bytes));
        connection->is_whole = client->is_heard = true;
        connection->since_ms = now;
    } else if (up->end >= BUFFER_BYTES - RESERVED) {
        answer(connection, "431 Request Header Fields Too Large", "", now);
    }
}

/* Whether its TLS has read more than there was room for: no news of its socket tells that. */
static bool is_pending(const struct connection *connection)
{
    bool takes = !connection->is_whole || (connection->server.socket >= 0 && has_room(connection->up));
    return takes && !connection->lingers && has_more(&connection->client);
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
        connection->server.socket = file;
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
    struct peer *client = &connection->client, *server = &connection->server;
    bool is_whole = take(client, connection->up, now) && give(server, connection->up, now);
    bool is_answered = take(server, connection->down, now) && give(client, connection->down, now);
    connection->news_ms = now;
    if (is_answered && connection->down->is_told)
        linger(connection, now);
    else if (!is_answered || (!is_whole && connection->down->begin == connection->down->end && connection->down->is_over))
        give_up(connection, now);
    else if (!is_whole) { /* the server reads no more, and may have answered why */
        connection->up->begin = connection->up->end = 0;
        connection->up->is_over = connection->up->is_told = true;
    }
}

static void attend_lingering(struct connection *connection, short client, int64_t now)
{
    static char dropped[4096];
    struct peer *peer = &connection->client;
    bool is_over = (client & ~POLLOUT) != 0 && recv(peer->socket, dropped, sizeof dropped, MSG_DONTWAIT) <= 0;
    bool is_late = now - connection->since_ms >= LINGER_MS;
    if (is_late && peer->blinded_ms != 0 && !is_over) {
        peer->blinded_ms = 0;
        connection->down->begin = connection->down->end = 0;
        connection->since_ms = now;
        client = POLLOUT;
    } else if (is_late || is_over) {
        forget(connection);
        return;
    }
    if ((client & POLLOUT) != 0 && peer->blinded_ms == 0)
        give(peer, connection->down, now);
}

/* Its handshake takes far more of the time than passing on does. */
static bool may_read_header(const struct peer *client)
{
    return client->protocol == PLAIN || client->is_shaken || handshakes_left-- > 0;
}

static void attend(struct connection *connection, short client, short server, int64_t now)
{
    if (connection->lingers) {
        attend_lingering(connection, client, now);
    } else if (!connection->is_whole) {
        if (now - connection->since_ms >= HEADER_MS) /* also where it comes byte by byte */
            forget(connection);
        else if ((client != 0 || is_pending(connection)) && may_read_header(&connection->client))
            read_header(connection, now);
        if (connection->is_whole && !connection->lingers) /* or it would wait like one without a server */
            reach_server(connection, now);
    } else if (connection->server.socket < 0) {
        reach_server(connection, now);
        if (client != 0)
            forget(connection);
        else if (connection->server.socket < 0 && now - connection->since_ms >= HELD_MS)
            answer(connection, "503 Service Unavailable", "", now);
    } else if (client & POLLERR) {
        forget(connection);
    } else if (client != 0 || server != 0 || is_pending(connection)) {
        pass(connection, now);
    } else if (now - connection->news_ms >= IDLE_MS) {
        forget(connection);
    }
}

static bool goes_before(const struct connection *one, const struct connection *other)
{
    return one->lingers != other->lingers ? one->lingers : one->since_ms < other->since_ms;
}

/* One that is free; else that which has been without a request for the longest time. */
static struct connection *place_for(void)
{
    struct connection *oldest = NULL;
    for (struct connection *each = connections; each < connections + MOST_CONNECTIONS; each++) {
        if (each->client.socket < 0)
            return each;
        if (!each->is_whole && (oldest == NULL || goes_before(each, oldest)))
            oldest = each;
    }
    return oldest;
}

static void welcome(int listener, int64_t now)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    struct connection *place = place_for();
    int file = accept4(listener, (struct sockaddr *)&address, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (file < 0)
        return;
    if (place == NULL) {
        static const char full[] = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 10\r\nConnection: close\r\n\r\n";
        if (!speaks_tls)
            send(file, full, sizeof full - 1, MSG_NOSIGNAL);
        close(file);
        return;
    }
    if (place->client.socket >= 0)
        forget(place);
    setsockopt(file, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    place->client = (struct peer){
        .socket = file,
        .protocol = speaks_tls ? UNDECIDED : PLAIN,
        .must_encrypt = speaks_tls && !is_loopback(&address),
    };
    place->is_whole = place->lingers = false;
    place->since_ms = place->news_ms = now;
    place->up->begin = place->up->end = place->down->begin = place->down->end = 0;
    place->up->is_over = place->up->is_told = place->down->is_over = place->down->is_told = false;
}

static short wanted(const struct stream *in, const struct stream *out)
{
    return (short)((has_room(in) ? POLLIN : 0) | (out->begin < out->end ? POLLOUT : 0));
}

static short wanted_of_client(const struct connection *connection)
{
    const struct stream *down = connection->down;
    bool is_untold = down->is_over && !down->is_told && connection->client.blinded_ms == 0;
    short writes = connection->client.wants_to_write || is_untold ? POLLOUT : 0;
    if (!connection->is_whole || connection->lingers)
        return (short)(POLLIN | writes);
    return (short)(connection->server.socket < 0 ? POLLRDHUP : wanted(connection->up, down) | writes);
}

/* Fills what is waited for; returns for how long. */
static int look_at_connections(struct pollfd *file, struct connection **active, int *count)
{
    int wait_ms = 1000;
    *count = 0;
    for (struct connection *each = connections; each < connections + MOST_CONNECTIONS; each++) {
        if (each->client.socket < 0)
            continue;
        bool is_held = each->is_whole && !each->lingers && each->server.socket < 0;
        short server = wanted(each->down, each->up);
        *file++ = (struct pollfd){.fd = each->client.socket, .events = wanted_of_client(each)};
        /* One that has ended is not news before there is room for what it said. */
        *file++ = (struct pollfd){.fd = server != 0 ? each->server.socket : -1, .events = server};
        active[(*count)++] = each;
        wait_ms = is_pending(each) ? 0 : is_held && wait_ms > RETRY_MS ? RETRY_MS : wait_ms;
    }
    return wait_ms;
}

static void look_at_certificate(int64_t now)
{
    enum pem_problem problem;
    if (!look_at_credentials(now, passing->certificate, &problem))
        return;
    passing->pem_problem = (int)problem;
    passing->pem_changes++;
}

static _Noreturn void pass_for_ever(const int *listeners, int listener_count, bool with_tls)
{
    static struct pollfd files[MOST_LISTENERS + 2 * MOST_CONNECTIONS];
    static struct connection *active[MOST_CONNECTIONS];
    if (!begin_tls(with_tls))
        _exit(CANNOT_PASS);
    for (int i = 0; i < MOST_CONNECTIONS; i++)
        connections[i] = (struct connection){
            .client = {.socket = -1},
            .server = {.socket = -1, .protocol = PLAIN},
            .up = &streams[i][0],
            .down = &streams[i][1],
        };
    for (int i = 0; i < listener_count; i++)
        files[i] = (struct pollfd){.fd = listeners[i], .events = POLLIN};
    for (int first = 0;; first++) { /* nobody is always the last */
        int count;
        struct pollfd *news = files + listener_count;
        int wait_ms = look_at_connections(news, active, &count);
        poll(files, (nfds_t)(listener_count + 2 * count), wait_ms);
        int64_t now = now_ms();
        look_at_certificate(now);
        handshakes_left = HANDSHAKES;
        first = count == 0 ? 0 : first % count;
        for (int i = first; i < first + count; i++)
            attend(active[i % count], news[i % count * 2].revents, news[i % count * 2 + 1].revents, now);
        for (int i = 0; i < listener_count; i++)
            if (files[i].revents != 0)
                welcome(listeners[i], now);
    }
}
