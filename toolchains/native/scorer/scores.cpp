#include "scores.h"

#include "item.h"

#include <time.h>

#include <cmath>

static void require_finite(double value) {
    if (!std::isfinite(value)) {
        throw item_error("the model's logits are not finite numbers");
    }
}

llama_token greedy_token(const float * logits, int32_t vocabulary_size) {
    llama_token greedy = 0;
    for (llama_token token = 1; token < vocabulary_size; token++) {
        if (logits[token] > logits[greedy]) {
            greedy = token;
        }
    }
    require_finite(logits[greedy]);
    return greedy;
}

distribution distribution_of(const float * logits, int32_t vocabulary_size) {
    const llama_token greedy  = greedy_token(logits, vocabulary_size);
    const double      highest = logits[greedy];
    double            sum     = 0;
    for (llama_token token = 0; token < vocabulary_size; token++) {
        sum += std::exp(logits[token] - highest);
    }
    require_finite(sum);
    return { logits, greedy, highest + std::log(sum) };
}

int64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}
