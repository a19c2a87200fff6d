#include "sampling.h"

#include "scores.h"

#include <cmath>

static float number(const item & from, const char * key, float otherwise, float most) {
    const float found = from.get<float>(key, otherwise);
    if (!std::isfinite(found) || found < 0 || found > most) {
        throw item_error(std::string(key) + ": out of range");
    }
    return found;
}

sampling::sampling(const item & from, int32_t vocabulary_size) : vocabulary_size_(vocabulary_size) {
    const float temperature = number(from, "temperature", 0, 100);
    const float top_p       = number(from, "top_p", 1, 1);
    const auto  top_k       = from.has("top_k") ? from.count("top_k", 0, vocabulary_size) : 0;
    // llama.cpp takes the highest number for a wish to be surprised.
    const auto seed = static_cast<uint32_t>(from.has("seed") ? from.count("seed", 0, INT32_MAX) : 0);
    if (temperature == 0) {
        return;
    }
    chain_.reset(llama_sampler_chain_init(llama_sampler_chain_default_params()));
    if (top_k > 0) {
        llama_sampler_chain_add(chain_.get(), llama_sampler_init_top_k(top_k));
    }
    llama_sampler_chain_add(chain_.get(), llama_sampler_init_top_p(top_p, 1));
    llama_sampler_chain_add(chain_.get(), llama_sampler_init_temp(temperature));
    llama_sampler_chain_add(chain_.get(), llama_sampler_init_dist(seed));
}

llama_token sampling::next(const float * logits) {
    const llama_token greedy = greedy_token(logits, vocabulary_size_);
    if (!chain_) {
        return greedy;
    }
    candidates_.clear();
    for (llama_token token = 0; token < vocabulary_size_; token++) {
        candidates_.push_back({ token, logits[token], 0 });
    }
    llama_token_data_array array = { candidates_.data(), candidates_.size(), -1, false };
    llama_sampler_apply(chain_.get(), &array);
    const llama_token chosen = array.data[array.selected].id;
    llama_sampler_accept(chain_.get(), chosen);
    return chosen;
}
