#include "generation.h"

#include <algorithm>
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

struct clean_text {
    std::string         text; // UTF-8
    std::vector<size_t> ends; // for each end that was given, where it is in text
};

// Table 3-7 of the Unicode standard: which bytes may follow the first one.
static size_t expected_length(unsigned char first, unsigned char & low, unsigned char & high) {
    low  = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (first < 0x80) {
        return 1;
    }
    if (first < 0xC2 || first > 0xF4) {
        return 0;
    }
    return first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

// What is no UTF-8 becomes U+FFFD, one for each maximal part of a character, as in Python. A character
// that is not complete at the end is left out: the next token would complete it, so that a text
// that was cut is the beginning of one that was not.
static clean_text cleaned(const std::string & bytes, const std::vector<size_t> & ends) {
    clean_text found;
    found.ends.reserve(ends.size());
    size_t begin = 0;
    while (begin < bytes.size()) {
        unsigned char low, high;
        const size_t  length = expected_length(static_cast<unsigned char>(bytes[begin]), low, high);
        size_t        end    = begin + 1;
        while (end < bytes.size() && end < begin + length) {
            const auto byte = static_cast<unsigned char>(bytes[end]);
            if (byte < low || byte > high) {
                break;
            }
            low  = 0x80;
            high = 0xBF;
            end++;
        }
        const bool is_whole = length > 0 && end == begin + length;
        if (!is_whole && length > 0 && end == bytes.size()) {
            break;
        }
        // Only the next byte shows that a character was broken off.
        const size_t known_from = is_whole || length == 0 ? end : end + 1;
        while (found.ends.size() < ends.size() && ends[found.ends.size()] < known_from) {
            found.ends.push_back(found.text.size());
        }
        found.text += is_whole ? bytes.substr(begin, length) : "\xEF\xBF\xBD";
        begin = end;
    }
    found.ends.resize(ends.size(), found.text.size());
    return found;
}

generation::generation(item from, const vocabulary & words, prompts & renders, media * eyes, sequence_ids & ids,
                       int32_t context_tokens)
    : task(std::move(from)), words_(words), sampling_(item_, words.size()),
      context_tokens_(context_tokens), limit_(item_.count("max_tokens", 1, INT32_MAX)),
      stop_texts_(item_.get<std::vector<std::string>>("stop", {})), start_ns_(now_ns()) {
    item_.allow({ "prompt", "messages", "images", "template", "template_arguments", "date", "max_tokens", "temperature",
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
    const auto images = images_of(item_, eyes);
    const auto rendered = renders.render(item_, images.size(), eyes == nullptr ? "" : eyes->marker());
    tags_               = rendered.tags;
    marks_              = words.control_tokens(tags_.begin + tags_.end + tags_.lead + tags_.answer);
    thinks_from_start_  = tags_.are_open(rendered.text, false);
    text_.emplace(ids);
    text_->add_prompt(begun(rendered.text, images, eyes));
}

// Returns the tokens that are not processed yet.
std::vector<llama_token> generation::begun(const std::string & prompt, const std::vector<std::string> & images,
                                           media * eyes) {
    if (images.empty()) {
        const auto tokens = words_.begin(prompt);
        prompt_tokens_    = tokens.size();
        check_length(tokens.size(), context_tokens_);
        return tokens;
    }
    const seen_prompt seen = eyes->look(prompt, images, text_->id());
    prompt_tokens_         = static_cast<size_t>(seen.tokens);
    context_tokens_ -= seen.more_cells;
    text_->continue_at(seen.length);
    return seen.rest;
}

std::vector<sequence *> generation::waiting() {
    if (text_->pending() == 0) {
        return {};
    }
    return { &*text_ };
}

void generation::read(const sequence &, const float * logits) {
    const llama_token token = sampling_.next(logits);
    // Some families end messages, of which thoughts are one, with the same token.
    const bool is_mark = marks_.count(token) > 0 && tags_.are_open(bytes_, thinks_from_start_);
    if (words_.ends(token) && !is_mark) {
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
    bytes_ += words_.piece(token, marks_.count(token) > 0);
    ends_.push_back(bytes_.size());
    const size_t from = before - std::min(before, tags_.end.size());
    if (think_tokens_ == 0 && bytes_.find(tags_.end, from) != std::string::npos) {
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
    const std::string closing = tags_.are_open(bytes_, thinks_from_start_) ? tags_.closing() : "";
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
    found["thought_tags"]         = tags_.shown();
    found["stop"]                 = stop_;
    found["conclude_from"]        = conclude_from_ ? json(*conclude_from_) : json();
    return found;
}
