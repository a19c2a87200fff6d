// The tokens of a text, which need no pass.

#pragma once

#include "task.h"
#include "vocabulary.h"

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
