// The connections between the nodes of a run: each to each, and only for who knows the run's key.
//
// distributed-llama's own way of connecting takes any client for a node, and counts the workers in the
// order in which they come.

#pragma once

#include "nn/nn-network.hpp"

#include <memory>
#include <string>
#include <vector>

static const NnUint MOST_NODES = 64;

// A connection to a node cannot be made, or it has another program.
struct mesh_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Connects the root to its workers, and the workers to each other.
//
// peers: of each worker, the addresses of the workers after it, as it reaches them, HOST:PORT.
std::unique_ptr<NnNetwork> connect_root(const std::vector<std::string> &              workers,
                                        const std::vector<std::vector<std::string>> & peers,
                                        const std::string &                           key);

// Waits for the root, and for the workers before this one.
std::unique_ptr<NnNetwork> await_root(const std::string & host, int port, const std::string & key);
