// Passes over the weights, each with tokens of all items that are being answered.

#pragma once

#include "llama.h"
#include "task.h"

#include <memory>
#include <stdexcept>
#include <vector>

// The engine cannot go on.
struct engine_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

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
