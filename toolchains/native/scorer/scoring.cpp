#include "scoring.h"

#include <algorithm>
#include <numeric>

likelihood::likelihood(item from, const vocabulary & words, media * eyes, sequence_ids & ids,
                       sequence_ids & spare_ids, int32_t context_tokens)
    : task(std::move(from)), words_(words), spare_ids_(spare_ids), context_tokens_(context_tokens),
      start_ns_(now_ns()) {
    item_.allow({ "context", "continuations", "images" });
    const auto images = images_of(item_, eyes);
    if (!images.empty() && item_.is_list("context")) {
        throw item_error("images: they stand before a text, and the context is a list of tokens");
    }
    if (item_.is_list("context")) {
        take_tokens();
    } else {
        tokenize(images.empty());
    }
    if (continuations_.empty()) {
        throw item_error("continuations: there is none");
    }
    for (const continuation & each : continuations_) {
        // The last token's logits are not needed.
        check_length(context_.size() + each.tokens.size() - 1, context_tokens);
    }
    shared_ = std::make_unique<sequence>(ids);
    if (!images.empty()) {
        look(eyes, images);
    }
    shared_->add_prompt(context_);
}

// Images stand before the context. What the projector puts behind the last one is part of the text.
void likelihood::look(media * eyes, const std::vector<std::string> & images) {
    std::string prompt;
    for (size_t i = 0; i < images.size(); i++) {
        prompt += eyes->marker();
    }
    const seen_prompt seen = eyes->look(prompt + text_, images, shared_->id());
    context_               = seen.rest;
    seen_tokens_           = seen.tokens - static_cast<int32_t>(seen.rest.size());
    shared_->continue_at(seen.length);
    for (const continuation & each : continuations_) {
        check_length(static_cast<size_t>(seen.tokens) + each.tokens.size() - 1, context_tokens_);
    }
}

// Context and continuation are tokenized together and cut at the length of the tokenized context.
// Spaces at its end belong to the continuation, as most vocabularies have words that begin with one.
void likelihood::tokenize(bool begins) {
    auto         context = item_.get<std::string>("context");
    const auto   words   = [&](const std::string & text) {
        return begins ? words_.begin(text) : words_.after_image(text);
    };
    const auto   texts   = item_.get<std::vector<std::string>>("continuations");
    const size_t end     = context.find_last_not_of(" \t\n\r\f\v") + 1;
    const auto   spaces  = context.substr(end);
    context.resize(end);
    text_    = context;
    context_ = words(context);
    if (context_.empty() && begins) {
        context_ = { words_.before_all() };
    }
    for (const std::string & text : texts) {
        auto together = words(context + spaces + text);
        if (begins && context.empty() && (together.empty() || together[0] != context_[0])) {
            together.insert(together.begin(), context_[0]);
        }
        if (together.size() <= context_.size()) {
            throw item_error("continuations: one has no token of its own: " + json(text).dump());
        }
        const auto cut = together.begin() + static_cast<ptrdiff_t>(context_.size());
        continuations_.push_back({ { cut, together.end() }, {}, {}, nullptr });
    }
}

std::vector<llama_token> likelihood::known(const char * key, const json & list) const {
    std::vector<llama_token> tokens;
    for (const json & each : list) {
        if (!each.is_number_integer() || each < 0 || each >= words_.size()) {
            throw item_error(std::string(key) + ": must hold tokens, from 0 to " +
                             std::to_string(words_.size() - 1) + "; one is " + each.dump());
        }
        tokens.push_back(each.get<llama_token>());
    }
    return tokens;
}

// The tokens are taken as they are: nothing is put before them, unless there is no context.
void likelihood::take_tokens() {
    context_ = known("context", item_.get<json>("context"));
    if (context_.empty()) {
        context_ = { words_.before_all() };
    }
    for (const json & list : item_.get<std::vector<json>>("continuations")) {
        if (!list.is_array() || list.empty()) {
            throw item_error("continuations: after a list of tokens, each must be one: " + list.dump());
        }
        continuations_.push_back({ known("continuations", list), {}, {}, nullptr });
    }
}

std::vector<sequence *> likelihood::waiting() {
    std::vector<sequence *> found;
    if (shared_ && shared_->pending() > 0) {
        found.push_back(shared_.get());
    }
    for (const continuation & each : continuations_) {
        if (each.after && each.after->pending() > 0) {
            found.push_back(each.after.get());
        }
    }
    return found;
}

void likelihood::continuation::score(const float * logits, int32_t vocabulary_size) {
    const distribution found = distribution_of(logits, vocabulary_size);
    const llama_token  token = tokens[log_likelihoods.size()];
    log_likelihoods.push_back(found.log_likelihood(token));
    greedy.push_back(found.greedy == token);
}

void likelihood::read(const sequence & from, const float * logits) {
    for (continuation & each : continuations_) {
        if (&from == shared_.get() || &from == each.after.get()) {
            each.score(logits, words_.size());
        }
    }
}

// As many continuations at a time as there are sequences, and cells for one context.
void likelihood::advance() {
    if (shared_->pending() > 0) {
        return;
    }
    size_t cells = seen_tokens_ + context_.size();
    for (continuation & each : continuations_) {
        if (each.is_done()) {
            each.after.reset();
        } else if (each.after) {
            cells += each.tokens.size() - 1;
        }
    }
    for (continuation & each : continuations_) {
        const size_t more = each.tokens.size() - 1;
        if (each.is_done() || each.after) {
            continue;
        }
        if (!spare_ids_.has_one() || cells + more > static_cast<size_t>(context_tokens_)) {
            break;
        }
        cells += more;
        each.after = std::make_unique<sequence>(spare_ids_);
        each.after->continue_from(*shared_);
        for (size_t i = 0; i < more; i++) {
            each.after->add(each.tokens[i], true);
        }
    }
}

bool likelihood::is_finished() const {
    return std::all_of(continuations_.begin(), continuations_.end(),
                       [](const continuation & each) { return each.is_done(); });
}

json likelihood::answer() const {
    json found              = item_.answer();
    found["context_tokens"] = seen_tokens_ + context_.size();
    for (const continuation & each : continuations_) {
        found["continuations"].push_back({ { "tokens", each.tokens },
                                           { "log_likelihoods", each.log_likelihoods },
                                           { "greedy", each.greedy } });
    }
    found["start_ns"] = start_ns_;
    found["end_ns"]   = now_ns();
    return found;
}

raw_logits::raw_logits(item from, const vocabulary & words, prompts & renders, media * eyes, sequence_ids & ids,
                       int32_t context_tokens, logits_file * file)
    : task(std::move(from)), words_(words), file_(file),
      top_k_(item_.has("top_k") ? item_.count("top_k", 1, words.size()) : 0) {
    item_.allow({ "prompt", "messages", "images", "template", "template_arguments", "date", "positions", "top_k" });
    const auto images = images_of(item_, eyes);
    const auto prompt = renders.render(item_, images.size(), eyes == nullptr ? "" : eyes->marker()).text;
    text_.emplace(ids);
    if (images.empty()) {
        tokens_ = words.begin(prompt);
        check_length(tokens_.size(), context_tokens);
    } else {
        const seen_prompt seen = eyes->look(prompt, images, text_->id());
        before_                = seen.before;
        tokens_                = seen.rest;
        text_->continue_at(seen.length);
    }
    find_positions(static_cast<int32_t>(tokens_.size()));
    if (top_k_ == 0) {
        if (file_ == nullptr) {
            throw item_error("whole rows of logits need a file: --logits FILE, or use top_k");
        }
        offset_bytes_ = file_->reserve(positions_.size() * sizeof(float) * words.size());
    }
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
    json found = item_.answer();
    if (!before_.empty()) {
        found["before"] = before_;
    }
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
