/* What clients are sent and send, in TLS where a version asks for that: "tls yes". Its file tls.pem has
 * the certificate, those that lead to its root, and the private key: one file, so that each moment has
 * a pair that matches. Whoever replaces it, by renaming another one, has its certificate taken for all
 * further connections; one that cannot be used leaves the former in place.
 *
 * Clients of the board itself may leave TLS out. TLS is s2n-tls, with libcrypto of AWS-LC. */
#pragma once

#include <netinet/tcp.h>
#include <sys/stat.h>

#include "supervise_settings.h"

#ifdef ARMLOAD_TLS
#include <openssl/sha.h>
#include <s2n.h>
#else
struct s2n_connection;
#endif

enum {
    SUM_DIGITS = 64,
    MOST_PEM_BYTES = 1 << 16,
    LOOK_AT_PEM_MS = 1000,
    MOST_EARLY_BYTES = 1 << 16, /* of TLS, until a request's header is there */
    MOST_TAKEN_BYTES = 1 << 16, /* at a time: a client that sends without end is one of many */
    /* Its ciphers are authenticated, so that there is no padding to guess; and a longer delay would keep
     * what is wrong from people, and places from clients. */
    MOST_BLINDED_S = 2,
    TLS_HANDSHAKE_RECORD = 22,
};

static const char PEM_FILE[] = "tls.pem";

enum pem_problem { PEM_USED, PEM_UNREADABLE, PEM_TOO_LARGE, PEM_NO_KEY, PEM_UNUSABLE };

static const char *const PEM_PROBLEMS[] = {
    [PEM_USED] = "",
    [PEM_UNREADABLE] = "it cannot be read",
    [PEM_TOO_LARGE] = "it has more than 64 KiB",
    [PEM_NO_KEY] = "it has no private key",
    [PEM_UNUSABLE] = "its certificate and its private key cannot be used together",
};

enum { PEM_PROBLEM_COUNT = sizeof PEM_PROBLEMS / sizeof *PEM_PROBLEMS };

/* A client, or the server; of that, the socket alone is used. */
enum protocol { UNDECIDED, PLAIN, TLS };

struct peer {
    int socket; /* -1: none */
    enum protocol protocol;
    bool must_encrypt, is_shaken, is_heard, wants_to_write; /* is_heard: its request's header is there */
    size_t taken_bytes, early_bytes;                    /* of this turn; and before it was heard */
    int64_t blinded_ms; /* until then, it must not learn from the time when its TLS failed; 0: nothing */
    struct s2n_connection *tls;
    struct credentials *credentials;
};

/* An IPv4 address of the loopback may come in an IPv6 one. */
static bool is_loopback(const struct sockaddr_storage *address)
{
    const struct sockaddr_in *four = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
    if (address->ss_family == AF_INET)
        return ntohl(four->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&six->sin6_addr)
           || (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr) && six->sin6_addr.s6_addr[12] == 127);
}

static bool speaks_tls; /* the port, to all but the board itself */

#ifdef ARMLOAD_TLS

/* Its newest defaults: TLS 1.2 and 1.3, forward secrecy, authenticated ciphers alone. */
static const char TLS_POLICY[] = "20251014";

struct credentials {
    struct s2n_cert_chain_and_key *chain;
    struct s2n_config *config;
    int users;
    char sha256[SUM_DIGITS + 1]; /* of the certificate */
};

static struct {
    struct credentials *now; /* NULL: none was usable yet */
    struct stat seen;
    int64_t look_ms;
} tls;

static void release(struct credentials *credentials)
{
    if (credentials == NULL || credentials->users > 0)
        return;
    s2n_config_free(credentials->config);
    s2n_cert_chain_and_key_free(credentials->chain);
    free(credentials);
}

static bool note_certificate(struct credentials *credentials)
{
    struct s2n_cert *certificate;
    const uint8_t *der;
    uint32_t length;
    uint8_t sum[SHA256_DIGEST_LENGTH];
    if (s2n_cert_chain_get_cert(credentials->chain, &certificate, 0) != 0
        || s2n_cert_get_der(certificate, &der, &length) != 0)
        return false;
    SHA256(der, length, sum);
    for (size_t i = 0; i < sizeof sum; i++)
        snprintf(credentials->sha256 + 2 * i, 3, "%02x", sum[i]);
    return true;
}

/* Takes the key, which may stand anywhere, out of the text. */
static size_t cut_key(char *text, size_t length, char *key)
{
    static const char last[] = "PRIVATE KEY-----", begins[] = "-----BEGIN ", ends[] = "-----END ";
    char *name = memmem(text, length, last, sizeof last - 1), *from = name;
    while (from != NULL && from > text && from[-1] != '\n')
        from--;
    if (from == NULL || memcmp(from, begins, sizeof begins - 1) != 0)
        return 0;
    char *end = memmem(name, (size_t)(text + length - name), ends, sizeof ends - 1);
    char *to = end == NULL ? NULL : memmem(end, (size_t)(text + length - end), last, sizeof last - 1);
    if (to == NULL)
        return 0;
    to += sizeof last - 1;
    size_t size = (size_t)(to - from);
    memcpy(key, from, size);
    memmove(from, to, (size_t)(text + length - to) + 1);
    return size;
}

static struct credentials *make_credentials(char *text, size_t length, enum pem_problem *problem)
{
    static char key[MOST_PEM_BYTES];
    static const char *const protocols[] = {"http/1.1"};
    size_t key_bytes = cut_key(text, length, key);
    *problem = PEM_NO_KEY;
    if (key_bytes == 0)
        return NULL;
    struct credentials *made = calloc(1, sizeof *made);
    *problem = PEM_UNUSABLE;
    if (made == NULL)
        return NULL;
    made->chain = s2n_cert_chain_and_key_new();
    made->config = s2n_config_new_minimal();
    bool is_made = made->chain != NULL && made->config != NULL
                   && s2n_cert_chain_and_key_load_pem_bytes(made->chain, (uint8_t *)text, (uint32_t)(length - key_bytes),
                                                            (uint8_t *)key, (uint32_t)key_bytes) == 0
                   && s2n_config_set_cipher_preferences(made->config, TLS_POLICY) == 0
                   && s2n_config_add_cert_chain_and_key_to_store(made->config, made->chain) == 0
                   && s2n_config_set_protocol_preferences(made->config, protocols, 1) == 0
                   && s2n_config_set_max_blinding_delay(made->config, MOST_BLINDED_S) == 0 && note_certificate(made);
    explicit_bzero(key, sizeof key);
    if (is_made) {
        *problem = PEM_USED;
        return made;
    }
    release(made);
    return NULL;
}

static struct credentials *read_credentials(enum pem_problem *problem)
{
    static char text[MOST_PEM_BYTES + 1];
    int file = open(PEM_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    *problem = PEM_UNREADABLE;
    if (file < 0)
        return NULL;
    ssize_t length = read(file, text, MOST_PEM_BYTES);
    close(file);
    if (length < 0)
        return NULL;
    *problem = PEM_TOO_LARGE;
    if (length == MOST_PEM_BYTES)
        return NULL;
    text[length] = '\0';
    struct credentials *made = make_credentials(text, (size_t)length, problem);
    explicit_bzero(text, sizeof text);
    return made;
}

/* Returns whether there is something to tell; then the text has what is in force, or is empty. */
static bool look_at_credentials(int64_t now, char *sha256, enum pem_problem *problem)
{
    struct stat found = {0};
    if (!speaks_tls || now < tls.look_ms)
        return false;
    bool is_first = tls.look_ms == 0;
    tls.look_ms = now + LOOK_AT_PEM_MS;
    stat(PEM_FILE, &found);
    if (!is_first && found.st_ino == tls.seen.st_ino && found.st_size == tls.seen.st_size
        && memcmp(&found.st_mtim, &tls.seen.st_mtim, sizeof found.st_mtim) == 0
        && memcmp(&found.st_ctim, &tls.seen.st_ctim, sizeof found.st_ctim) == 0)
        return false;
    tls.seen = found;
    struct credentials *made = read_credentials(problem);
    if (made != NULL) {
        release(tls.now);
        tls.now = made;
    }
    memcpy(sha256, tls.now == NULL ? "" : tls.now->sha256, tls.now == NULL ? 1 : sizeof tls.now->sha256);
    return true;
}

static bool begin_tls(bool is_wanted)
{
    speaks_tls = is_wanted;
    setenv("S2N_DONT_MLOCK", "1", 1); /* a board's limit of it is less than a connection takes */
    return !is_wanted || s2n_init() == 0;
}

static int take_for_tls(void *context, uint8_t *bytes, uint32_t room)
{
    struct peer *peer = context;
    bool is_too_early = !peer->is_heard && peer->early_bytes >= MOST_EARLY_BYTES;
    if (peer->taken_bytes >= MOST_TAKEN_BYTES || is_too_early) {
        errno = is_too_early ? ECONNRESET : EAGAIN;
        return -1;
    }
    ssize_t count = recv(peer->socket, bytes, room, MSG_DONTWAIT);
    /* A client may hold its request back until it knows that the end of its handshake has come. */
    if (!peer->is_heard)
        setsockopt(peer->socket, IPPROTO_TCP, TCP_QUICKACK, &(int){1}, sizeof(int));
    if (count > 0) {
        peer->taken_bytes += (size_t)count;
        peer->early_bytes += peer->is_heard ? 0 : (size_t)count;
    }
    return (int)count;
}

static bool begin_connection(struct peer *peer)
{
    if (tls.now == NULL || (peer->tls = s2n_connection_new(S2N_SERVER)) == NULL)
        return false;
    peer->credentials = tls.now;
    peer->credentials->users++;
    return s2n_connection_set_config(peer->tls, tls.now->config) == 0
           && s2n_connection_set_blinding(peer->tls, S2N_SELF_SERVICE_BLINDING) == 0
           && s2n_connection_set_dynamic_buffers(peer->tls, true) == 0
           && s2n_connection_set_recv_cb(peer->tls, take_for_tls) == 0
           && s2n_connection_set_recv_ctx(peer->tls, peer) == 0
           && s2n_connection_set_write_fd(peer->tls, peer->socket) == 0;
}

/* As of a socket: errno says EAGAIN, or that the connection is broken. */
static ssize_t failed(struct peer *peer, s2n_blocked_status blocked, int64_t now)
{
    bool is_blocked = s2n_error_get_type(s2n_errno) == S2N_ERR_T_BLOCKED;
    peer->wants_to_write = is_blocked && blocked == S2N_BLOCKED_ON_WRITE;
    errno = is_blocked ? EAGAIN : ECONNRESET;
    if (is_blocked)
        return -1;
    uint64_t delay_ms = s2n_connection_get_delay(peer->tls) / 1000000;
    peer->blinded_ms = delay_ms > 0 ? now + (int64_t)delay_ms : 0;
    s2n_blocked_status ignored;
    s2n_shutdown_send(peer->tls, &ignored); /* the alert, where it may be told at once */
    return -1;
}

static ssize_t take_tls(struct peer *peer, void *bytes, size_t room, int64_t now)
{
    s2n_blocked_status blocked = S2N_NOT_BLOCKED;
    s2n_errno = S2N_ERR_T_OK;
    peer->taken_bytes = 0;
    peer->wants_to_write = false;
    if (!peer->is_shaken) {
        if (peer->tls == NULL && !begin_connection(peer)) {
            errno = ECONNRESET;
            return -1;
        }
        if (s2n_negotiate(peer->tls, &blocked) != 0)
            return failed(peer, blocked, now);
        peer->is_shaken = true;
        s2n_connection_free_handshake(peer->tls);
    }
    ssize_t count = s2n_recv(peer->tls, bytes, (ssize_t)room, &blocked);
    if (count >= 0)
        return count;
    /* Most clients hang up without a word of TLS. */
    return s2n_error_get_type(s2n_errno) == S2N_ERR_T_CLOSED ? 0 : failed(peer, blocked, now);
}

static ssize_t give_tls(struct peer *peer, const void *bytes, size_t length, int64_t now)
{
    s2n_blocked_status blocked = S2N_NOT_BLOCKED;
    s2n_errno = S2N_ERR_T_OK;
    peer->wants_to_write = false;
    ssize_t count = s2n_send(peer->tls, bytes, (ssize_t)length, &blocked);
    return count >= 0 ? count : failed(peer, blocked, now);
}

static bool end_tls(struct peer *peer)
{
    s2n_blocked_status blocked = S2N_NOT_BLOCKED;
    s2n_errno = S2N_ERR_T_OK;
    peer->wants_to_write = s2n_shutdown_send(peer->tls, &blocked) != 0
                             && s2n_error_get_type(s2n_errno) == S2N_ERR_T_BLOCKED;
    return !peer->wants_to_write;
}

static bool has_more(const struct peer *peer)
{
    return peer->tls != NULL && peer->is_shaken && s2n_peek(peer->tls) > 0;
}

static void leave_tls(struct peer *peer)
{
    if (peer->tls != NULL)
        s2n_connection_free(peer->tls);
    peer->tls = NULL;
    if (peer->credentials != NULL && --peer->credentials->users == 0 && peer->credentials != tls.now)
        release(peer->credentials);
    peer->credentials = NULL;
}

#else /* versions that want TLS are refused before any of these is called */

static bool begin_tls(bool is_wanted)
{
    return !is_wanted;
}

static bool look_at_credentials(int64_t now, char *sha256, enum pem_problem *problem)
{
    (void)now, (void)sha256, (void)problem;
    return false;
}

static ssize_t take_tls(struct peer *peer, void *bytes, size_t room, int64_t now)
{
    (void)peer, (void)bytes, (void)room, (void)now;
    return 0;
}

static ssize_t give_tls(struct peer *peer, const void *bytes, size_t length, int64_t now)
{
    (void)peer, (void)now;
    return bytes == NULL ? 0 : (ssize_t)length;
}

static bool end_tls(struct peer *peer)
{
    (void)peer;
    return true;
}

static bool has_more(const struct peer *peer)
{
    (void)peer;
    return false;
}

static void leave_tls(struct peer *peer)
{
    (void)peer;
}

#endif

/* As recv does; the first byte says whether a client speaks TLS. */
static ssize_t take_from(struct peer *peer, void *bytes, size_t room, int64_t now)
{
    uint8_t first;
    if (peer->protocol == UNDECIDED) {
        ssize_t count = recv(peer->socket, &first, 1, MSG_PEEK | MSG_DONTWAIT);
        if (count <= 0)
            return count;
        peer->protocol = first == TLS_HANDSHAKE_RECORD ? TLS : PLAIN;
    }
    if (peer->protocol == TLS)
        return take_tls(peer, bytes, room, now);
    return recv(peer->socket, bytes, room, MSG_DONTWAIT);
}

static ssize_t give_to(struct peer *peer, const void *bytes, size_t length, int64_t now)
{
    if (peer->protocol == TLS)
        return give_tls(peer, bytes, length, now);
    return send(peer->socket, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Tells it that nothing more comes; false where that has to be tried again. */
static bool end_to(struct peer *peer)
{
    if (peer->protocol == TLS && !end_tls(peer))
        return false;
    shutdown(peer->socket, SHUT_WR);
    return true;
}
