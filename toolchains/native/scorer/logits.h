// The logits themselves, at given positions of a prompt.

#pragma once

#include "output.h"
#include "prompts.h"
#include "task.h"
#include "vocabulary.h"

#include <optional>
#include <vector>

class raw_logits : public task {
  public:
    // Throws item_error if the item is at fault, its prompt exceeds the context, or there is no
    // file for whole rows.
    raw_logits(item from, const vocabulary & words, prompts & renders, sequence_ids & ids,
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
    std::vector<llama_token> tokens_;
    std::vector<int32_t>     positions_; // ascending
    std::optional<sequence>  text_;
    int64_t                  offset_bytes_ = 0;
    size_t                   done_         = 0;
    json                     top_          = json::array();
};
