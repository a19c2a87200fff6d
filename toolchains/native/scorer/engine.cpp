#include "engine.h"

#include "passes.h"

#include <algorithm>

// For each item at a time: the item's own, and some for continuations that share its beginning.
static const int32_t SEQUENCES_PER_ITEM = 5;
// Logits of one pass. A prompt of 512 tokens and a vocabulary of 150,000 words would take 300 MB.
static const int64_t MOST_OUTPUT_BYTES = 64 << 20;
static const int32_t USUAL_CONTEXT     = 4096;

engine::engine(common_params wanted) {
    llama_backend_init();
    llama_numa_init(wanted.numa);
    model_.reset(llama_model_load_from_file(wanted.model.path.c_str(), common_model_params_to_llama(wanted)));
    if (!model_) {
        throw engine_error(wanted.model.path + ": llama.cpp cannot load this model");
    }
    const auto most_sequences = static_cast<int32_t>(llama_max_parallel_sequences());
    if (2 * wanted.n_parallel > most_sequences) {
        throw engine_error("-np " + std::to_string(wanted.n_parallel) + ": at most " +
                           std::to_string(most_sequences / 2) + " items can be answered at a time");
    }
    const int32_t trained = llama_model_n_ctx_train(model_.get());
    context_tokens_       = wanted.n_ctx > 0 ? wanted.n_ctx : std::min(trained, USUAL_CONTEXT);
    sequences_            = std::min(SEQUENCES_PER_ITEM * wanted.n_parallel, most_sequences);
    pass_tokens_          = std::max(std::min(wanted.n_batch, wanted.n_ubatch), wanted.n_parallel);
    const int64_t vocabulary_size = llama_vocab_n_tokens(llama_model_get_vocab(model_.get()));
    const auto    fitting = MOST_OUTPUT_BYTES / (static_cast<int64_t>(sizeof(float)) * vocabulary_size);
    pass_outputs_ = std::max(static_cast<int32_t>(std::min<int64_t>(fitting, pass_tokens_)), wanted.n_parallel);

    wanted.n_ctx                  = context_tokens_ * wanted.n_parallel;
    wanted.n_parallel             = sequences_;
    wanted.n_batch                = pass_tokens_;
    wanted.n_ubatch               = pass_tokens_;
    llama_context_params settings = common_context_params_to_llama(wanted);
    // Sequences that share cells need one buffer for all of them.
    settings.kv_unified = true;
#ifdef ARMLOAD_LIMITS_OUTPUTS
    settings.n_outputs_max         = static_cast<uint32_t>(pass_outputs_);
    settings.n_outputs_max_per_seq = settings.n_outputs_max;
#endif
    context_ = llama_init_from_model(model_.get(), settings);
    if (context_ == nullptr) {
        throw engine_error("llama.cpp cannot set up a context of " + std::to_string(wanted.n_ctx) +
                           " tokens");
    }
    use_threads(wanted);
}

engine::~engine() {
    llama_free(context_);
    ggml_threadpool_free(threads_);
}

// The engine would start its threads anew for every pass.
void engine::use_threads(const common_params & wanted) {
    ggml_threadpool_params settings = ggml_threadpool_params_from_cpu_params(wanted.cpuparams);
    threads_                        = ggml_threadpool_new(&settings);
    if (threads_ == nullptr) {
        throw engine_error("llama.cpp cannot start its threads");
    }
    llama_attach_threadpool(context_, threads_, nullptr);
}
