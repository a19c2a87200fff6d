#include "generation.h"

#include "scores.h"
#include "text.h"

#include <algorithm>

static const char BEGIN_OF_THOUGHT[] = "<think>";
static const char END_OF_THOUGHT[]   = "</think>";

static bool ends_in_thought(const std::string & text, bool began_in_thought) {
    const size_t begin = text.rfind(BEGIN_OF_THOUGHT), end = text.rfind(END_OF_THOUGHT);
    if (begin == std::string::npos && end == std::string::npos) {
        return began_in_thought;
    }
    return begin != std::string::npos && (end == std::string::npos || end < begin);
}

generation::generation(item from, const vocabulary & words, prompts & renders, sequence_ids & ids,
                       int32_t context_tokens)
    : task(std::move(from)), words_(words), sampling_(item_, words.size()),
      context_tokens_(context_tokens), limit_(item_.count("max_tokens", 1, INT32_MAX)),
      stop_texts_(item_.get<std::vector<std::string>>("stop", {})), start_ns_(now_ns()) {
    item_.allow({ "prompt", "messages", "template", "template_arguments", "date", "max_tokens", "temperature",
                  "top_p", "top_k", "seed", "stop", "conclude", "conclude_tokens" });
    if (item_.has("conclude") != item_.has("conclude_tokens")) {
        throw item_error("conclude and conclude_tokens: give both or none");
    }
    if (item_.has("conclude")) {
        item_.count("conclude_tokens", 1, INT32_MAX - limit_);
        if (words.go_on(item_.get<std::string>("conclude")).empty()) {
            throw item_error("conclude: has no tokens");
        }
    }
    stop_texts_.erase(std::remove(stop_texts_.begin(), stop_texts_.end(), ""), stop_texts_.end());
    const std::string prompt_text = renders.render(item_);
    thinks_from_start_            = ends_in_thought(prompt_text, false);
    const auto prompt             = words.begin(prompt_text);
    prompt_tokens_                = prompt.size();
    check_length(prompt.size(), context_tokens);
    text_.emplace(ids);
    text_->add_prompt(prompt);
}

std::vector<sequence *> generation::waiting() {
    if (text_->pending() == 0) {
        return {};
    }
    return { &*text_ };
}

void generation::read(const sequence &, const float * logits) {
    const llama_token token = sampling_.next(logits);
    if (words_.ends(token)) {
        stop_ = "end";
        return;
    }
    keep(token);
    if (has_stop_text()) {
        stop_ = "stop";
    }
}

void generation::keep(llama_token token) {
    tokens_.push_back(token);
    times_ns_.push_back(now_ns());
    const size_t before = bytes_.size();
    bytes_ += words_.piece(token);
    ends_.push_back(bytes_.size());
    const size_t from = before - std::min(before, sizeof(END_OF_THOUGHT));
    if (think_tokens_ == 0 && bytes_.find(END_OF_THOUGHT, from) != std::string::npos) {
        think_tokens_ = static_cast<int32_t>(tokens_.size());
    }
}

// The text ends before the first of them.
bool generation::has_stop_text() {
    size_t first = std::string::npos, longest = 1;
    for (const std::string & each : stop_texts_) {
        first   = std::min(first, bytes_.find(each, searched_from_));
        longest = std::max(longest, each.size());
    }
    if (first == std::string::npos) {
        searched_from_ = std::max(searched_from_, bytes_.size() - std::min(bytes_.size(), longest - 1));
        return false;
    }
    bytes_.resize(first);
    for (size_t & end : ends_) {
        end = std::min(end, first);
    }
    return true;
}

void generation::advance() {
    if (text_->pending() > 0) {
        return;
    }
    const bool is_budget = static_cast<int32_t>(tokens_.size()) >= limit_;
    if (is_budget && (conclude_from_ || !item_.has("conclude"))) {
        stop_ = "budget";
        return;
    }
    text_->add_sampled(tokens_.back(), !is_budget);
    if (is_budget) {
        conclude();
    }
    if (text_->length() + static_cast<int32_t>(text_->pending()) > context_tokens_) {
        stop_ = "context";
    }
}

// A model that is still thinking would take the sentence for one of its thoughts.
void generation::conclude() {
    const std::string closing = ends_in_thought(bytes_, thinks_from_start_) ? "\n</think>\n\n" : "";
    const auto        added   = words_.go_on(closing + item_.get<std::string>("conclude"));
    conclude_from_            = tokens_.size();
    for (llama_token token : added) {
        keep(token);
    }
    searched_from_ = bytes_.size();
    limit_         = static_cast<int32_t>(tokens_.size()) + item_.count("conclude_tokens", 1, INT32_MAX);
    text_->add_prompt(added);
}

json generation::answer() const {
    const clean_text cleaned_text = cleaned(bytes_, ends_);
    json             found        = item_.answer();
    found["prompt_tokens"]        = prompt_tokens_;
    found["start_ns"]             = start_ns_;
    found["tokens"]               = tokens_;
    found["times_ns"]             = times_ns_;
    found["text_bytes"]           = cleaned_text.ends;
    found["text"]                 = cleaned_text.text;
    found["think_tokens"]         = think_tokens_;
    found["thinks_from_start"]    = thinks_from_start_;
    found["stop"]                 = stop_;
    found["conclude_from"]        = conclude_from_ ? json(*conclude_from_) : json();
    return found;
}
