#include "sequence.h"

sequence_ids::sequence_ids(llama_context * context, llama_seq_id first, llama_seq_id end)
    : memory_(llama_get_memory(context)) {
    for (llama_seq_id id = end; id-- > first;) {
        free_.push_back(id);
    }
}

llama_seq_id sequence_ids::take() {
    const llama_seq_id id = free_.back();
    free_.pop_back();
    return id;
}

void sequence_ids::give_back(llama_seq_id id) {
    llama_memory_seq_rm(memory_, id, -1, -1);
    free_.push_back(id);
}

sequence::sequence(sequence_ids & ids) : ids_(ids), id_(ids.take()) {}

sequence::~sequence() {
    ids_.give_back(id_);
}

void sequence::continue_from(const sequence & other) {
    llama_memory_seq_cp(ids_.memory(), other.id_, id_, -1, -1);
    length_ = other.length_;
}

void sequence::add_prompt(const std::vector<llama_token> & tokens) {
    for (size_t i = 0; i < tokens.size(); i++) {
        add(tokens[i], i + 1 == tokens.size());
    }
}

void sequence::add_sampled(llama_token token, bool is_read) {
    is_sampled_ = true;
    add(token, is_read);
}

pending_token sequence::feed() {
    const pending_token next = pending_[next_++];
    is_sampled_              = false;
    length_++;
    if (next_ == pending_.size()) {
        pending_.clear();
        next_ = 0;
    }
    return next;
}

void sequence::tell_what_follows() {
    if (!is_sampled_) {
        llama_memory_seq_rm(ids_.memory(), id_, length_, -1);
    }
}
