// Items that are being answered, and the passes over the weights in which tokens of all of them are processed.

#pragma once

#include "engine.h"
#include "item.h"

#include "llama.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// What logits say of tokens.
struct distribution {
    const float * logits;
    llama_token   greedy;
    double        log_sum; // of the exponentials

    double log_likelihood(llama_token token) const { return logits[token] - log_sum; }
};

// Both throw item_error if the logits are no numbers.
llama_token  greedy_token(const float * logits, int32_t vocabulary_size); // the first of the highest
distribution distribution_of(const float * logits, int32_t vocabulary_size);

int64_t now_ns(); // CLOCK_MONOTONIC

// Tokens that an item needs processed, and what it makes of the logits.
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

// Passes over the weights, each with tokens of all items.
class passes {
  public:
    passes(llama_context * context, int32_t most_tokens, int32_t most_outputs);
    ~passes();
    passes(const passes &)             = delete;
    passes & operator=(const passes &) = delete;

    // One pass. Every text that is being written gets its next token; the rest of the room goes to
    // the prompts in the order of the items. So a pass, which takes seconds if the weights come
    // from storage, never serves one prompt alone, and no prompt holds up the others for longer
    // than one full pass.
    //
    // Throws engine_error.
    void run(const std::vector<std::unique_ptr<task>> & tasks);

  private:
    struct output {
        task *     reader;
        sequence * from;
        int32_t    row;
    };

    void fill(const std::vector<std::unique_ptr<task>> & tasks);
    void add(task & reader, sequence & from);

    llama_context *     context_;
    int32_t             most_tokens_;
    size_t              most_outputs_;
    llama_batch         batch_;
    std::vector<output> outputs_;
};
