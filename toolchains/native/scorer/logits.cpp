#include "logits.h"

#include <algorithm>
#include <numeric>

raw_logits::raw_logits(item from, const vocabulary & words, prompts & renders, sequence_ids & ids,
                       int32_t context_tokens, logits_file * file)
    : task(std::move(from)), words_(words), file_(file),
      top_k_(item_.has("top_k") ? item_.count("top_k", 1, words.size()) : 0) {
    item_.allow({ "prompt", "messages", "template", "template_arguments", "date", "positions", "top_k" });
    tokens_ = words.begin(renders.render(item_));
    check_length(tokens_.size(), context_tokens);
    find_positions(static_cast<int32_t>(tokens_.size()));
    if (top_k_ == 0) {
        if (file_ == nullptr) {
            throw item_error("whole rows of logits need a file: --logits FILE, or use top_k");
        }
        offset_bytes_ = file_->reserve(positions_.size() * sizeof(float) * words.size());
    }
    text_.emplace(ids);
    // Nothing after the last position is needed.
    for (int32_t i = 0; i <= positions_.back(); i++) {
        text_->add(tokens_[i], std::binary_search(positions_.begin(), positions_.end(), i));
    }
}

void raw_logits::find_positions(int32_t count) {
    const json wanted = item_.get<json>("positions");
    if (wanted == "all") {
        positions_.resize(count);
        std::iota(positions_.begin(), positions_.end(), 0);
    } else if (wanted == "last") {
        positions_ = { count - 1 };
    } else {
        positions_ = item_.get<std::vector<int32_t>>("positions");
        std::sort(positions_.begin(), positions_.end());
        positions_.erase(std::unique(positions_.begin(), positions_.end()), positions_.end());
        if (positions_.empty() || positions_.front() < 0 || positions_.back() >= count) {
            throw item_error("positions: must be from 0 to " + std::to_string(count - 1));
        }
    }
}

std::vector<sequence *> raw_logits::waiting() {
    return { &*text_ };
}

void raw_logits::read(const sequence &, const float * logits) {
    if (top_k_ == 0) {
        const size_t row_bytes = sizeof(float) * words_.size();
        file_->write(logits, row_bytes, offset_bytes_ + static_cast<int64_t>(done_ * row_bytes));
    } else {
        std::vector<llama_token> ids(words_.size());
        std::iota(ids.begin(), ids.end(), 0);
        std::partial_sort(ids.begin(), ids.begin() + top_k_, ids.end(),
                          [&](llama_token a, llama_token b) {
                              return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
                          });
        ids.resize(top_k_);
        std::vector<float> values;
        for (llama_token id : ids) {
            values.push_back(logits[id]);
        }
        top_.push_back({ { "ids", ids }, { "values", values } });
    }
    done_++;
}

json raw_logits::answer() const {
    json found         = item_.answer();
    found["tokens"]    = tokens_;
    found["positions"] = positions_;
    if (top_k_ > 0) {
        found["top"] = top_;
        return found;
    }
    file_->sync();
    found["offset_bytes"] = offset_bytes_;
    found["rows"]         = positions_.size();
    found["columns"]      = words_.size();
    return found;
}
