// The model with its context, as llama.cpp's own programs set them up, its vocabulary, and the sequences in its
// KV cache.

#pragma once

#include "common.h"
#include "llama-cpp.h"
#include "llama.h"

#include <ggml-cpu.h>

#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

// The engine cannot go on.
struct engine_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class engine {
  public:
    // Throws engine_error.
    explicit engine(common_params wanted);
    ~engine();
    engine(const engine &)             = delete;
    engine & operator=(const engine &) = delete;

    const llama_model * model() const { return model_.get(); }
    llama_context *     context() const { return context_; }

    int32_t context_tokens() const { return context_tokens_; } // of each item
    int32_t sequences() const { return sequences_; }           // more than there are items at a time
    int32_t pass_tokens() const { return pass_tokens_; }
    int32_t pass_outputs() const { return pass_outputs_; }

  private:
    void use_adapters(const common_params & wanted);
    void use_threads(const common_params & wanted);

    llama_model_ptr   model_;
    // They are freed before the model.
    std::vector<llama_adapter_lora_ptr> adapters_;

    llama_context *   context_ = nullptr;
    ggml_threadpool_t threads_ = nullptr;
    int32_t           context_tokens_;
    int32_t           sequences_;
    int32_t           pass_tokens_;
    int32_t           pass_outputs_;
};

// Text to tokens and back.
class vocabulary {
  public:
    explicit vocabulary(const llama_model * model) : vocab_(llama_model_get_vocab(model)) {}

    // With the beginning-of-text token, where the model has one.
    std::vector<llama_token> begin(const std::string & text) const;
    std::vector<llama_token> go_on(const std::string & text) const;
    std::vector<llama_token> after_image(const std::string & text) const; // as libmtmd has them

    // Of a text of which the model is given nothing: every text has a token before its first one.
    llama_token before_all() const;

    // The bytes of a token: none for a control token, unless it is asked for.
    std::string piece(llama_token token, bool is_control_shown = false) const;

    std::set<llama_token> control_tokens(const std::string & text) const;

    bool    ends(llama_token token) const { return llama_vocab_is_eog(vocab_, token); }
    int32_t size() const { return llama_vocab_n_tokens(vocab_); }

  private:
    const llama_vocab * vocab_;
};

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

// A sequence in the KV cache, and the tokens that are to follow what lies there.
class sequence {
  public:
    // There must be a free id.
    explicit sequence(sequence_ids & ids);
    ~sequence();
    sequence(const sequence &)             = delete;
    sequence & operator=(const sequence &) = delete;

    // Begins with the cells of another one.
    void continue_from(const sequence & other);
    // Begins behind what something else has put into its cells.
    void continue_at(llama_pos length) { length_ = length; }

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
