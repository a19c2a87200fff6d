#include "vocabulary.h"

#include "common.h"

vocabulary::vocabulary(const llama_model * model) : vocab_(llama_model_get_vocab(model)) {
    for (const char * tag : { "<think>", "</think>" }) {
        const auto tokens = go_on(tag);
        if (tokens.size() == 1) {
            thoughts_.insert(tokens[0]);
        }
    }
}

std::vector<llama_token> vocabulary::begin(const std::string & text) const {
    return common_tokenize(vocab_, text, true, true);
}

static std::string joined(const vocabulary & words, const std::vector<llama_token> & tokens) {
    std::string text;
    for (llama_token token : tokens) {
        text += words.piece(token);
    }
    return text;
}

// SentencePiece's vocabularies put a space before every text. Here it is taken away where it can be.
std::vector<llama_token> vocabulary::go_on(const std::string & text) const {
    auto tokens = common_tokenize(vocab_, text, false, true);
    if (text.empty() || joined(*this, tokens) != " " + text) {
        return tokens;
    }
    if (text[0] == ' ') {
        return common_tokenize(vocab_, text.substr(1), false, true);
    }
    if (piece(tokens[0]) == " ") {
        tokens.erase(tokens.begin());
    }
    return tokens;
}

llama_token vocabulary::before_all() const {
    const llama_token first = llama_vocab_bos(vocab_);
    return first != LLAMA_TOKEN_NULL ? first : llama_vocab_eos(vocab_);
}

std::string vocabulary::piece(llama_token token) const {
    return common_token_to_piece(vocab_, token, thoughts_.count(token) > 0);
}
