// Items for which the model writes nothing: what it makes of texts that are given.

#pragma once

#include "media.h"
#include "prompts.h"
#include "task.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

// How likely continuations of a context are, by lm-evaluation-harness's definitions.
class likelihood : public task {
  public:
    // Throws item_error if the item is at fault, or exceeds the context.
    likelihood(item from, const vocabulary & words, media * eyes, sequence_ids & ids, sequence_ids & spare_ids,
               int32_t context_tokens);

    std::vector<sequence *> waiting() override;
    void                    advance() override;

  protected:
    void read(const sequence & from, const float * logits) override;
    bool is_finished() const override;
    json answer() const override;

  private:
    struct continuation {
        std::vector<llama_token>  tokens;
        std::vector<double>       log_likelihoods;
        std::vector<bool>         greedy;
        std::unique_ptr<sequence> after; // its tokens after the context; none before and afterwards

        bool is_done() const { return log_likelihoods.size() == tokens.size(); }
        void score(const float * logits, int32_t vocabulary_size);
    };

    void tokenize(bool begins); // whether the text is the first of the prompt
    void take_tokens();
    void look(media * eyes, const std::vector<std::string> & images);

    // Throws item_error if one is not in the vocabulary.
    std::vector<llama_token> known(const char * key, const json & list) const;

    const vocabulary & words_;
    sequence_ids &     spare_ids_; // of the continuations
    int32_t            context_tokens_;
    int64_t            start_ns_;

    std::string               text_;    // of the context
    std::vector<llama_token>  context_; // what follows the last image, if there is one
    int32_t                   seen_tokens_ = 0; // before that
    std::unique_ptr<sequence> shared_; // the context, which every continuation begins with
    std::vector<continuation> continuations_;
};

// The logits themselves, at given positions of a prompt; with images, of what follows the last one.
class raw_logits : public task {
  public:
    // Throws item_error if the item is at fault, its prompt exceeds the context, or there is no
    // file for whole rows.
    raw_logits(item from, const vocabulary & words, prompts & renders, media * eyes, sequence_ids & ids,
               int32_t context_tokens, logits_file * file);

    std::vector<sequence *> waiting() override;

  protected:
    void read(const sequence & from, const float * logits) override;
    bool is_finished() const override { return done_ == positions_.size(); }
    json answer() const override;

  private:
    void find_positions(int32_t count);

    const vocabulary &       words_;
    logits_file *            file_;
    int32_t                  top_k_; // 0: whole rows
    std::vector<llama_token> before_; // to the end of the last image, -1 for an image's
    std::vector<llama_token> tokens_;
    std::vector<int32_t>     positions_; // ascending
    std::optional<sequence>  text_;
    int64_t                  offset_bytes_ = 0;
    size_t                   done_         = 0;
    json                     top_          = json::array();
};

// The tokens of a text, which need no pass.
class tokenization : public task {
  public:
    // Throws item_error if the item is at fault.
    tokenization(item from, const vocabulary & words) : task(std::move(from)) {
        item_.allow({ "text" });
        tokens_ = words.begin(item_.get<std::string>("text"));
    }

    std::vector<sequence *> waiting() override { return {}; }

  protected:
    void read(const sequence &, const float *) override {}
    bool is_finished() const override { return true; }
    json answer() const override {
        json found      = item_.answer();
        found["tokens"] = tokens_;
        return found;
    }

  private:
    std::vector<llama_token> tokens_;
};
