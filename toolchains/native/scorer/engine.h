// The model with its context, as llama.cpp's own programs set them up.

#pragma once

#include "llama-cpp.h"
#include "options.h"

#include <ggml-cpu.h>

#include <memory>

class engine {
  public:
    // Throws engine_error.
    explicit engine(common_params wanted);
    ~engine();
    engine(const engine &)             = delete;
    engine & operator=(const engine &) = delete;

    const llama_model * model() const { return model_.get(); }
    llama_context *     context() const { return context_; }

    int32_t context_tokens() const { return context_tokens_; } // of each item
    int32_t sequences() const { return sequences_; }           // more than there are items at a time
    int32_t pass_tokens() const { return pass_tokens_; }
    int32_t pass_outputs() const { return pass_outputs_; }

  private:
    void use_threads(const common_params & wanted);

    llama_model_ptr   model_;
    llama_context *   context_ = nullptr;
    ggml_threadpool_t threads_ = nullptr;
    int32_t           context_tokens_;
    int32_t           sequences_;
    int32_t           pass_tokens_;
    int32_t           pass_outputs_;
};
