#include "task.h"

void task::take(const sequence & from, const float * logits) {
    if (!error_.empty()) {
        return;
    }
    try {
        read(from, logits);
    } catch (const item_error & error) {
        error_ = error.what();
    }
}

json task::outcome() const {
    return error_.empty() ? answer() : refusal(item_, error_);
}

json refusal(const item & from, const std::string & why) {
    json found     = from.answer();
    found["error"] = why;
    return found;
}

void check_length(size_t tokens, int32_t context_tokens) {
    if (tokens == 0) {
        throw item_error("the prompt is empty, and the model has no token that begins a text");
    }
    if (tokens > static_cast<size_t>(context_tokens)) {
        throw item_error("it has " + std::to_string(tokens) + " tokens, but the context has only " +
                         std::to_string(context_tokens) + " (-c)");
    }
}
