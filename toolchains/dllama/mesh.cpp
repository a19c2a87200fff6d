#include "mesh.h"

#include <cerrno>
#include <chrono>
#include <cstring>
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

// The first thing that who connects says. Both are of one build, for one CPU.
struct greeting {
    char     program[32];
    char     commit[48];
    char     key[80];
    uint32_t from; // number of the node, 0 is the root
    uint32_t to;
    uint32_t nodes;
};

greeting greeting_of(const std::string & key, uint32_t from, uint32_t to, uint32_t nodes) {
    greeting made;
    std::memset(&made, 0, sizeof(made));
    std::strncpy(made.program, "armload-dllama 1", sizeof(made.program) - 1);
    std::strncpy(made.commit, ARMLOAD_ENGINE_COMMIT, sizeof(made.commit) - 1);
    std::strncpy(made.key, key.c_str(), sizeof(made.key) - 1);
    made.from  = from;
    made.to    = to;
    made.nodes = nodes;
    return made;
}

// In a time that does not tell how much of the key was right.
bool is_same(const char * one, const char * other, size_t size) {
    unsigned char difference = 0;
    for (size_t i = 0; i < size; i++) {
        difference |= (unsigned char) (one[i] ^ other[i]);
    }
    return difference == 0;
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

// The whole greeting in so many seconds: a byte now and then would keep all others waiting.
bool take_greeting(int socket, greeting & hello, int seconds) {
    using namespace std::chrono;
    const auto until = steady_clock::now() + std::chrono::seconds(seconds);
    char *     at    = (char *) &hello;
    for (size_t size = sizeof(hello); size > 0;) {
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
    limit(socket, seconds);
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

// Connects to a node and is accepted by it. A forward takes a client before it knows of the node.
int join(const std::string & address, const greeting & hello) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(MESH_LIMIT_S);
    do {
        const int made = dial(address);
        char      answer;
        if (made >= 0) {
            send_at_once(made);
            if (put(made, &hello, sizeof(hello)) && take(made, &answer, 1) && answer == READY) {
                return made;
            }
            close(made);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(RETRY_MS));
    } while (std::chrono::steady_clock::now() < until);
    throw mesh_error("node " + std::to_string(hello.to) + " at " + address + " does not answer");
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
        if (take_greeting(client, hello, CLIENT_LIMIT_S)) {
            const greeting known = greeting_of(key, hello.from, hello.to, hello.nodes);
            if (is_same((const char *) &known, (const char *) &hello, sizeof(known)) && hello.nodes <= MOST_NODES &&
                hello.from < hello.to && hello.to < hello.nodes && put(client, &READY, 1)) {
                return client;
            }
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
        made.push_back(join(workers[node - 1], greeting_of(key, 0, node, nodes)));
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
        made.push_back(join(address, greeting_of(key, root.to, node, root.nodes)));
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
