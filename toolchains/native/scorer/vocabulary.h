// Text to tokens and back, as llama.cpp's own programs do it.

#pragma once

#include "llama.h"

#include <set>
#include <string>
#include <vector>

class vocabulary {
  public:
    explicit vocabulary(const llama_model * model);

    // With the beginning-of-text token, where the model has one.
    std::vector<llama_token> begin(const std::string & text) const;
    std::vector<llama_token> go_on(const std::string & text) const;

    // Of a text of which the model is given nothing: every text has a token before its first one.
    llama_token before_all() const;

    // The bytes of a token: none for a control token, unless it begins or ends a thought.
    std::string piece(llama_token token) const;

    bool    ends(llama_token token) const { return llama_vocab_is_eog(vocab_, token); }
    int32_t size() const { return llama_vocab_n_tokens(vocab_); }

  private:
    const llama_vocab *   vocab_;
    std::set<llama_token> thoughts_;
};
