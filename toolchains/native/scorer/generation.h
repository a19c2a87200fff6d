// An answer that the model writes.

#pragma once

#include "media.h"
#include "prompts.h"
#include "task.h"

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

// Which token follows: the most likely one, or one that is drawn.
class sampling {
  public:
    // Of temperature, top_k, top_p and seed, in llama.cpp's order of samplers.
    sampling(const item & from, int32_t vocabulary_size);

    llama_token next(const float * logits);

  private:
    struct freed {
        void operator()(llama_sampler * chain) const { llama_sampler_free(chain); }
    };

    int32_t                               vocabulary_size_;
    std::unique_ptr<llama_sampler, freed> chain_; // none if greedy
    std::vector<llama_token_data>         candidates_;
};

class generation : public task {
  public:
    // Throws item_error if the item is at fault, or its prompt exceeds the context.
    //
    // With images, the prompt up to the last one is processed at once, which takes passes of its own.
    generation(item from, const vocabulary & words, prompts & renders, media * eyes, sequence_ids & ids,
               int32_t context_tokens);

    std::vector<sequence *> waiting() override;
    void                    advance() override;

  protected:
    void read(const sequence & from, const float * logits) override;
    bool is_finished() const override { return !stop_.empty(); }
    json answer() const override;

  private:
    std::vector<llama_token> begun(const std::string & prompt, const std::vector<std::string> & images,
                                   media * eyes);
    void keep(llama_token token);
    bool has_stop_text();
    void conclude();

    const vocabulary &       words_;
    sampling                 sampling_;
    int32_t                  context_tokens_;
    int32_t                  limit_; // of tokens, the conclusion's included
    std::vector<std::string> stop_texts_;

    std::optional<sequence> text_;
    size_t                  prompt_tokens_;
    int64_t                 start_ns_;

    std::vector<llama_token> tokens_;
    std::vector<int64_t>     times_ns_;
    std::string              bytes_;
    std::vector<size_t>      ends_;              // of each token, in bytes_
    size_t                   searched_from_ = 0; // stop texts do not begin before
    thought_tags             tags_;
    std::set<llama_token>    marks_; // control tokens in the tags, which the text shows
    int32_t                  think_tokens_  = 0;
    bool                     thinks_from_start_; // the prompt ends inside a thought
    std::optional<size_t>    conclude_from_;
    std::string              stop_; // why it ended; empty while it goes on
};
