// What logits say of tokens.

#pragma once

#include "llama.h"

#include <cstdint>

struct distribution {
    const float * logits;
    llama_token   greedy;
    double        log_sum; // of the exponentials

    double log_likelihood(llama_token token) const { return logits[token] - log_sum; }
};

// Both throw item_error if the logits are no numbers.
llama_token  greedy_token(const float * logits, int32_t vocabulary_size); // the first of the highest
distribution distribution_of(const float * logits, int32_t vocabulary_size);

int64_t now_ns(); // CLOCK_MONOTONIC
