// How likely continuations of a context are, by lm-evaluation-harness's definitions.

#pragma once

#include "task.h"
#include "vocabulary.h"

#include <memory>
#include <string>
#include <vector>

class likelihood : public task {
  public:
    // Throws item_error if the item is at fault, or exceeds the context.
    likelihood(item from, const vocabulary & words, sequence_ids & ids, sequence_ids & spare_ids,
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

    void tokenize();
    void take_tokens();

    // Throws item_error if one is not in the vocabulary.
    std::vector<llama_token> known(const char * key, const json & list) const;

    const vocabulary & words_;
    sequence_ids &     spare_ids_; // of the continuations
    int32_t            context_tokens_;
    int64_t            start_ns_;

    std::vector<llama_token>  context_;
    std::unique_ptr<sequence> shared_; // the context, which every continuation begins with
    std::vector<continuation> continuations_;
};
