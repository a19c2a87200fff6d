#include "task.h"

#include <time.h>

#include <cmath>

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

passes::passes(llama_context * context, int32_t most_tokens, int32_t most_outputs)
    : context_(context), most_tokens_(most_tokens), most_outputs_(static_cast<size_t>(most_outputs)),
      batch_(llama_batch_init(most_tokens, 0, 1)) {}

passes::~passes() {
    llama_batch_free(batch_);
}

void passes::run(const std::vector<std::unique_ptr<task>> & tasks) {
    fill(tasks);
    const int32_t result = llama_decode(context_, batch_);
    if (result != 0) {
        throw engine_error("llama.cpp could not process " + std::to_string(batch_.n_tokens) +
                           " tokens (llama_decode returned " + std::to_string(result) + ")");
    }
    for (const output & each : outputs_) {
        each.reader->take(*each.from, llama_get_logits_ith(context_, each.row));
    }
    for (const auto & each : tasks) {
        if (!each->is_over()) {
            each->advance();
        }
    }
}

void passes::fill(const std::vector<std::unique_ptr<task>> & tasks) {
    batch_.n_tokens = 0;
    outputs_.clear();
    for (const bool is_sampled : { true, false }) {
        for (const auto & each : tasks) {
            for (sequence * from : each->waiting()) {
                if (from->is_sampled() == is_sampled) {
                    add(*each, *from);
                }
            }
        }
    }
    if (batch_.n_tokens == 0) {
        throw engine_error("no item can go on");
    }
}

void passes::add(task & reader, sequence & from) {
    from.tell_what_follows();
    while (from.pending() > 0 && batch_.n_tokens < most_tokens_ && outputs_.size() < most_outputs_) {
        const int32_t       row  = batch_.n_tokens++;
        const llama_pos     at   = from.length();
        const pending_token next = from.feed();
        batch_.token[row]        = next.token;
        batch_.pos[row]          = at;
        batch_.n_seq_id[row]     = 1;
        batch_.seq_id[row][0]    = from.id();
        batch_.logits[row]       = next.is_read;
        if (next.is_read) {
            outputs_.push_back({ &reader, &from, row });
        }
    }
}

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
