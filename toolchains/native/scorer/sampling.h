// Which token follows: the most likely one, or one that is drawn.

#pragma once

#include "item.h"
#include "llama.h"

#include <memory>
#include <vector>

class sampling {
  public:
    // Of temperature, top_k, top_p and seed, in llama.cpp's order of samplers.
    sampling(const item & from, int32_t vocabulary_size);

    llama_token next(const float * logits);

  private:
    struct freed {
        void operator()(llama_sampler * chain) const { llama_sampler_free(chain); }
    };

    int32_t                               vocabulary_size_;
    std::unique_ptr<llama_sampler, freed> chain_; // none if greedy
    std::vector<llama_token_data>         candidates_;
};
