// A sequence in the KV cache, and the tokens that are to follow what lies there.

#pragma once

#include "llama.h"

#include <vector>

// Some of the sequences that a context has. All share its cells: a copy takes none of its own.
class sequence_ids {
  public:
    sequence_ids(llama_context * context, llama_seq_id first, llama_seq_id end);

    llama_memory_t memory() const { return memory_; }
    bool           has_one() const { return !free_.empty(); }
    llama_seq_id   take();
    void           give_back(llama_seq_id id);

  private:
    llama_memory_t            memory_;
    std::vector<llama_seq_id> free_;
};

struct pending_token {
    llama_token token;
    bool        is_read; // its logits are wanted
};

class sequence {
  public:
    // There must be a free id.
    explicit sequence(sequence_ids & ids);
    ~sequence();
    sequence(const sequence &)             = delete;
    sequence & operator=(const sequence &) = delete;

    // Begins with the cells of another one.
    void continue_from(const sequence & other);

    void add(llama_token token, bool is_read) { pending_.push_back({ token, is_read }); }
    // A token that the logits read last gave.
    void add_sampled(llama_token token, bool is_read);
    // Tokens that the model did not sample; only the last one's logits are wanted.
    void add_prompt(const std::vector<llama_token> & tokens);

    llama_seq_id id() const { return id_; }
    llama_pos    length() const { return length_; } // tokens in the cache
    size_t       pending() const { return pending_.size() - next_; }

    // The next one, which lies in the cache from now on.
    pending_token feed();

    bool is_sampled() const { return is_sampled_; } // the next one

    // The trace takes a token after logits that were read for a sampled one, unless it is told that
    // a prompt follows.
    void tell_what_follows();

  private:
    sequence_ids &             ids_;
    llama_seq_id               id_;
    llama_pos                  length_ = 0;
    std::vector<pending_token> pending_;
    size_t                     next_       = 0;
    bool                       is_sampled_ = false;
};
