#pragma once

#include "output_rest.h"

#include <string>
#include <vector>

// Times of one node that computes its part, in nanoseconds.
struct node_times {
    std::vector<long long> first_ns, last_ns; // of a token with an empty KV cache, and with a full one
    std::vector<long long> prompt_ns;         // of the first batch of a prompt
};

// Times what a node computes, with weights of zero and without the other nodes: each for so long.
node_times time_node(LlmHeader header, const output_rest & rest, NnUint nodes, NnUint threads, NnUint batch,
                     double seconds);
