#include "mesh.h"

#include "proof.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <thread>
#include <unistd.h>

namespace {

const int      GREETING_LIMIT_S = 10;
const int      CLIENT_LIMIT_S   = 3;
const int      MESH_LIMIT_S     = 60; // while the nodes after one are still being reached
const int      RETRY_MS         = 200;
const uint32_t MOST_TEXT_BYTES  = 256;
const char     READY            = '+';
const char     PROGRAM[]        = "armload-dllama";
const char     PROTOCOL[]       = " 2";

// What program this is; nodes must agree, and be for CPUs of one byte order.
struct build {
    char program[32];
    char commit[48];
};

// The first thing that who connects says. Neither side tells the other the key: each proves that it
// knows it, for a number that the other has just drawn.
struct greeting {
    build    made;
    uint32_t from; // number of the node, 0 is the root
    uint32_t to;
    uint32_t nodes;
    uint8_t  challenge[32];
};

struct answer {
    build   made;
    uint8_t challenge[32];
    proof   shown;
};

build build_of() {
    build made;
    std::memset(&made, 0, sizeof(made));
    std::strncpy(made.program, (std::string(PROGRAM) + PROTOCOL).c_str(), sizeof(made.program) - 1);
    std::strncpy(made.commit, ARMLOAD_ENGINE_COMMIT, sizeof(made.commit) - 1);
    return made;
}

bool is_of_build(const build & one, const build & other) {
    return std::memcmp(&one, &other, sizeof(one)) == 0;
}

void draw(uint8_t (&challenge)[32]) {
    std::ifstream source("/dev/urandom", std::ios::binary);
    if (!source.read((char *) challenge, sizeof(challenge))) {
        throw mesh_error("/dev/urandom cannot be read");
    }
}

// Who shows it is a part of it, so that no side's proof can be sent back as the other's.
proof shown_by(const char * side, const std::string & key, const greeting & hello, const uint8_t (&challenge)[32]) {
    return proof_of(key, side + std::string((const char *) &hello, sizeof(hello)) +
                             std::string((const char *) challenge, sizeof(challenge)));
}

greeting greeting_of(uint32_t from, uint32_t to, uint32_t nodes) {
    greeting hello;
    std::memset(&hello, 0, sizeof(hello));
    hello.made  = build_of();
    hello.from  = from;
    hello.to    = to;
    hello.nodes = nodes;
    return hello;
}

void limit(int socket, int seconds) {
    const timeval time = { seconds, 0 };
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
}

void send_at_once(int socket) {
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// Unlike distributed-llama's, these give up after the socket's time limit.
bool put(int socket, const void * data, size_t size) {
    const char * at = (const char *) data;
    while (size > 0) {
        const ssize_t count = send(socket, at, size, MSG_NOSIGNAL);
        if (count <= 0) {
            if (count < 0 && errno == EINTR) {
                continue;
            }
            return false;
        }
        at += count;
        size -= (size_t) count;
    }
    return true;
}

bool take(int socket, void * data, size_t size) {
    char * at = (char *) data;
    while (size > 0) {
        const ssize_t count = recv(socket, at, size, 0);
        if (count <= 0) {
            if (count < 0 && errno == EINTR) {
                continue;
            }
            return false;
        }
        at += count;
        size -= (size_t) count;
    }
    return true;
}

typedef std::chrono::steady_clock::time_point moment;

moment in(int seconds) {
    return std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
}

// All of it until then: a byte now and then would keep all others waiting.
bool take_until(moment until, int socket, void * data, size_t size) {
    using namespace std::chrono;
    char * at = (char *) data;
    while (size > 0) {
        const int64_t left_us = duration_cast<microseconds>(until - steady_clock::now()).count();
        if (left_us <= 0) {
            return false;
        }
        const timeval time = { (time_t) (left_us / 1000000), (suseconds_t) (left_us % 1000000) };
        setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
        const ssize_t count = recv(socket, at, size, 0);
        if (count == 0 || (count < 0 && errno != EINTR)) {
            return false;
        }
        at += count < 0 ? 0 : count;
        size -= (size_t) (count < 0 ? 0 : count);
    }
    return true;
}

bool put_text(int socket, const std::string & text) {
    const uint32_t size = (uint32_t) text.size();
    return put(socket, &size, sizeof(size)) && put(socket, text.data(), size);
}

bool take_text(int socket, std::string & text) {
    uint32_t size;
    if (!take(socket, &size, sizeof(size)) || size > MOST_TEXT_BYTES) {
        return false;
    }
    text.resize(size);
    return size == 0 || take(socket, &text[0], size);
}

int dial(const std::string & address) {
    const size_t colon = address.rfind(':');
    if (colon == std::string::npos) {
        throw mesh_error(address + ": an address is HOST:PORT");
    }
    addrinfo   hints;
    addrinfo * found = NULL;
    std::memset(&hints, 0, sizeof(hints));
    hints.ai_family   = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags    = AI_NUMERICHOST | AI_NUMERICSERV;
    const std::string host = address.substr(0, colon), port = address.substr(colon + 1);
    if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) {
        throw mesh_error(address + ": this is not the address of a node");
    }
    int made = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, found->ai_protocol);
    if (made >= 0) {
        limit(made, GREETING_LIMIT_S);
        if (connect(made, found->ai_addr, found->ai_addrlen) != 0) {
            close(made);
            made = -1;
        }
    }
    freeaddrinfo(found);
    return made;
}

std::string named(const greeting & hello, const std::string & address) {
    return "node " + std::to_string(hello.to) + " at " + address;
}

// Connects to a node, both show that they know the key, and it accepts.
//
// A forward takes a client before it knows of the node, and hangs up without an answer.
int join(const std::string & address, const std::string & key, greeting hello) {
    const moment until = in(MESH_LIMIT_S);
    do {
        const int made = dial(address);
        answer    told;
        char      accepted;
        if (made >= 0) {
            send_at_once(made);
            draw(hello.challenge);
            if (put(made, &hello, sizeof(hello)) && take_until(in(GREETING_LIMIT_S), made, &told, sizeof(told))) {
                if (!is_of_build(told.made, hello.made)) {
                    close(made);
                    throw mesh_error(named(hello, address) + " runs another program, or another build of this one");
                }
                if (!is_same(told.shown, shown_by("answer", key, hello, told.challenge))) {
                    close(made);
                    throw mesh_error(named(hello, address) + " does not know the key of this run");
                }
                const proof own = shown_by("join", key, hello, told.challenge);
                limit(made, GREETING_LIMIT_S);
                if (put(made, own.data(), own.size()) && take(made, &accepted, 1) && accepted == READY) {
                    return made;
                }
            }
            close(made);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(RETRY_MS));
    } while (std::chrono::steady_clock::now() < until);
    throw mesh_error(named(hello, address) + " does not answer");
}

bool is_welcome(int client, const std::string & key, greeting & hello) {
    const moment until = in(CLIENT_LIMIT_S);
    answer       own;
    proof        theirs;
    if (!take_until(until, client, &hello, sizeof(hello)) ||
        std::memcmp(hello.made.program, PROGRAM, sizeof(PROGRAM) - 1) != 0) {
        return false;
    }
    own.made = build_of();
    draw(own.challenge);
    own.shown = shown_by("answer", key, hello, own.challenge);
    // A node of another build is told of it, and hangs up.
    return put(client, &own, sizeof(own)) && is_of_build(hello.made, own.made) && hello.nodes <= MOST_NODES &&
           hello.from < hello.to && hello.to < hello.nodes &&
           take_until(until, client, theirs.data(), theirs.size()) &&
           is_same(theirs, shown_by("join", key, hello, own.challenge)) && put(client, &READY, 1);
}

// Returns the next client that knows the key; the others are hung up on.
int accept_node(int listener, const std::string & key, greeting & hello) {
    for (;;) {
        const int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (client < 0) {
            if (errno == EINTR || errno == ECONNABORTED) {
                continue;
            }
            throw mesh_error(std::string("cannot accept a connection: ") + strerror(errno));
        }
        limit(client, CLIENT_LIMIT_S);
        send_at_once(client);
        if (is_welcome(client, key, hello)) {
            limit(client, CLIENT_LIMIT_S);
            return client;
        }
        close(client);
    }
}

std::unique_ptr<NnNetwork> network_of(std::vector<int> & made) {
    std::vector<NnSocket> sockets(made.size());
    for (size_t i = 0; i < made.size(); i++) {
        limit(made[i], 0);
        sockets[i].assign(made[i]);
    }
    std::unique_ptr<NnNetwork> network(new NnNetwork(&sockets));
    network->resetStats();
    return network;
}

} // namespace

std::unique_ptr<NnNetwork> connect_root(const std::vector<std::string> &              workers,
                                        const std::vector<std::vector<std::string>> & peers,
                                        const std::string &                           key) {
    const uint32_t   nodes = (uint32_t) workers.size() + 1;
    std::vector<int> made;
    for (uint32_t node = 1; node < nodes; node++) {
        made.push_back(join(workers[node - 1], key, greeting_of(0, node, nodes)));
        bool is_told = true;
        for (const std::string & peer : peers[node - 1]) {
            is_told = is_told && put_text(made.back(), peer);
        }
        if (!is_told) {
            throw mesh_error("node " + std::to_string(node) + " has gone");
        }
    }
    for (uint32_t node = 1; node < nodes; node++) {
        char answer;
        limit(made[node - 1], 2 * MESH_LIMIT_S);
        if (!take(made[node - 1], &answer, 1) || answer != READY) {
            throw mesh_error("node " + std::to_string(node) + " did not reach the others");
        }
    }
    return network_of(made);
}

std::unique_ptr<NnNetwork> await_root(const std::string & host, int port, const std::string & key) {
    NnSocket         listener(createServerSocket(host.c_str(), port));
    std::vector<int> clients(1, -1); // by number of the node
    greeting         hello;
    while (clients[0] < 0) {
        const int client = accept_node(listener.fd, key, hello);
        if (clients.size() <= hello.from) {
            clients.resize(hello.from + 1, -1);
        }
        if (clients[hello.from] >= 0) {
            close(clients[hello.from]);
        }
        clients[hello.from] = client;
    }
    greeting root = hello;
    clients.resize(root.to, -1);
    std::vector<int> made(clients);
    for (uint32_t node = root.to + 1; node < root.nodes; node++) {
        std::string address;
        if (!take_text(made[0], address)) {
            throw mesh_error("the root has gone");
        }
        made.push_back(join(address, key, greeting_of(root.to, node, root.nodes)));
    }
    for (uint32_t missing = 1; missing < root.to; missing++) {
        while (made[missing] < 0) {
            const int client = accept_node(listener.fd, key, hello);
            if (hello.from == 0 || hello.from >= root.to || made[hello.from] >= 0) {
                close(client);
                continue;
            }
            made[hello.from] = client;
        }
    }
    if (!put(made[0], &READY, 1)) {
        throw mesh_error("the root has gone");
    }
    return network_of(made);
}
