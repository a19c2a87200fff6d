// What an output matrix of more bits loses in Q4_0, as a second matrix in Q4_0: their sum has 8 bits.
//
// distributed-llama has kernels for Q4_0 and 32-bit matrices alone, and the output matrix, which most
// files have in Q6_K or Q8_0, matters most. The second one lies behind the model in its file.

#pragma once

#include "llm.hpp"

#include <string>

class output_rest {
  public:
    // Looks whether a file has one, and leaves it out of the model's size.
    output_rest(const std::string & path, LlmHeader & header);

    // Has one of a model whose file is not looked at, or none; it cannot be loaded.
    output_rest(const LlmHeader & header, bool is_there);

    // Computes with it on each node.
    void add_to(LlmNet & net, NnUint nodes) const;

    // Gives each node its part; before the model's weights, which end with a message.
    void load(NnRootWeightLoader & loader, const LlmNet & net) const;

  private:
    std::string path_;
    NnSize      at_   = 0;
    NnSize      size_ = 0; // 0 without one
};
