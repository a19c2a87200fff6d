#pragma once

#include "output_rest.h"

#include <string>
#include <vector>

// Times of one node that computes its part, in nanoseconds.
struct node_times {
    std::vector<long long> token_ns, prompt_ns; // of one token; of a batch of a prompt
};

// Times what a node computes, with weights of zero and without the other nodes: each for so long.
node_times time_node(LlmHeader header, const output_rest & rest, NnUint nodes, NnUint threads, NnUint batch, NnUint depth,
                     double seconds);
