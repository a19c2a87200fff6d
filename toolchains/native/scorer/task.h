// An item that is being answered: tokens that it needs processed, and what it makes of the logits.

#pragma once

#include "item.h"
#include "sequence.h"

#include <cstdint>
#include <string>
#include <vector>

class task {
  public:
    explicit task(item from) : item_(std::move(from)) {}
    virtual ~task()                = default;
    task(const task &)             = delete;
    task & operator=(const task &) = delete;

    // Those with tokens to process. Empty when the item is answered, or waits for a free sequence.
    virtual std::vector<sequence *> waiting() = 0;

    // Takes the logits of the last token that this sequence was fed before them.
    void take(const sequence & from, const float * logits);

    // Says what comes next, when all logits of a pass were taken.
    virtual void advance() {}

    bool is_over() const { return !error_.empty() || is_finished(); }

    // The answer, or why there is none.
    json outcome() const;

  protected:
    // Throws item_error if they are no numbers.
    virtual void read(const sequence & from, const float * logits) = 0;
    virtual bool is_finished() const                               = 0;
    virtual json answer() const                                    = 0;

    const item item_;

  private:
    std::string error_;
};

// An item that was not answered, as a line of output.
json refusal(const item & from, const std::string & why);

// Throws item_error if the tokens exceed the context, or there are none.
void check_length(size_t tokens, int32_t context_tokens);
