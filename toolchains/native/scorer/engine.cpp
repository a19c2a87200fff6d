#include "engine.h"

#include "common.h"

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
    use_adapters(wanted);
    use_threads(wanted);
}

void engine::use_adapters(const common_params & wanted) {
    auto adapters = wanted.lora_adapters;
    for (auto & each : adapters) {
        each.ptr = llama_adapter_lora_init(model_.get(), each.path.c_str());
        if (each.ptr == nullptr) {
            throw engine_error(each.path + ": llama.cpp cannot load this adapter");
        }
        adapters_.emplace_back(each.ptr);
    }
    if (!adapters.empty()) {
        common_set_adapter_lora(context_, adapters);
    }
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

std::vector<llama_token> vocabulary::begin(const std::string & text) const {
    return common_tokenize(vocab_, text, true, true);
}

std::vector<llama_token> vocabulary::after_image(const std::string & text) const {
    return common_tokenize(vocab_, text, false, true);
}

static std::string joined(const vocabulary & words, const std::vector<llama_token> & tokens) {
    std::string text;
    for (llama_token token : tokens) {
        text += words.piece(token, true);
    }
    return text;
}

// SentencePiece's vocabularies put a space before every text. Here it is taken away where it can be.
std::vector<llama_token> vocabulary::go_on(const std::string & text) const {
    auto tokens = common_tokenize(vocab_, text, false, true);
    if (text.empty() || joined(*this, tokens) != " " + text) {
        return tokens;
    }
    if (text[0] == ' ') {
        return common_tokenize(vocab_, text.substr(1), false, true);
    }
    if (piece(tokens[0]) == " ") {
        tokens.erase(tokens.begin());
    }
    return tokens;
}

llama_token vocabulary::before_all() const {
    const llama_token first = llama_vocab_bos(vocab_);
    return first != LLAMA_TOKEN_NULL ? first : llama_vocab_eos(vocab_);
}

std::string vocabulary::piece(llama_token token, bool is_control_shown) const {
    return common_token_to_piece(vocab_, token, is_control_shown);
}

std::set<llama_token> vocabulary::control_tokens(const std::string & text) const {
    std::set<llama_token> found;
    for (llama_token token : common_tokenize(vocab_, text, false, true)) {
        if (llama_vocab_is_control(vocab_, token)) {
            found.insert(token);
        }
    }
    return found;
}

sequence_ids::sequence_ids(llama_context * context, llama_seq_id first, llama_seq_id end)
    : memory_(llama_get_memory(context)) {
    for (llama_seq_id id = end; id-- > first;) {
        free_.push_back(id);
    }
}

llama_seq_id sequence_ids::take() {
    const llama_seq_id id = free_.back();
    free_.pop_back();
    return id;
}

void sequence_ids::give_back(llama_seq_id id) {
    llama_memory_seq_rm(memory_, id, -1, -1);
    free_.push_back(id);
}

sequence::sequence(sequence_ids & ids) : ids_(ids), id_(ids.take()) {}

sequence::~sequence() {
    ids_.give_back(id_);
}

void sequence::continue_from(const sequence & other) {
    llama_memory_seq_cp(ids_.memory(), other.id_, id_, -1, -1);
    length_ = other.length_;
}

void sequence::add_prompt(const std::vector<llama_token> & tokens) {
    for (size_t i = 0; i < tokens.size(); i++) {
        add(tokens[i], i + 1 == tokens.size());
    }
}

void sequence::add_sampled(llama_token token, bool is_read) {
    is_sampled_ = true;
    add(token, is_read);
}

pending_token sequence::feed() {
    const pending_token next = pending_[next_++];
    is_sampled_              = false;
    length_++;
    if (next_ == pending_.size()) {
        pending_.clear();
        next_ = 0;
    }
    return next;
}

void sequence::tell_what_follows() {
    if (!is_sampled_) {
        llama_memory_seq_rm(ids_.memory(), id_, length_, -1);
    }
}
