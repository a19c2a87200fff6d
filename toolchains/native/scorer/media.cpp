#include "media.h"

#include "ggml-backend.h"
#include "mtmd-helper.h"
#include "mtmd.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

static int32_t whole_number(const std::string & text) {
    char * end;
    const long found = strtol(text.c_str(), &end, 10);
    if (*end != '\0' || found < 1 || found > INT32_MAX) {
        throw engine_error("--image-max-tokens " + text + ": must be a whole number from 1");
    }
    return static_cast<int32_t>(found);
}

namespace {

class seeing : public media {
  public:
    seeing(const engine & with, const common_params & wanted, const media_options & options)
        : engine_(with), folder_(options.folder) {
        mtmd_context_params settings = mtmd_context_params_default();
        settings.print_timings       = false;
        settings.n_threads           = wanted.cpuparams.n_threads;
        settings.flash_attn_type     = wanted.flash_attn_type;
        settings.warmup              = false; // it would encode an image that nobody asks about
        settings.cb_eval             = note_input;
        settings.cb_eval_user_data   = this;
        if (!options.most_tokens.empty()) {
            settings.image_max_tokens = whole_number(options.most_tokens);
        }
        mtmd_.reset(mtmd_init_from_file(options.projector.c_str(), with.model(), settings));
        if (!mtmd_) {
            throw engine_error(options.projector + ": llama.cpp cannot load this projector");
        }
    }

    std::string marker() const override { return mtmd_get_marker(mtmd_.get()); }

    seen_prompt look(const std::string & text, const std::vector<std::string> & images,
                     llama_seq_id id) override {
        const mtmd::input_chunks_ptr chunks = tokenized(text, images);
        const size_t                 tokens = mtmd_helper_get_n_tokens(chunks.get());
        check_length(tokens, engine_.context_tokens());
        const size_t last = mtmd_input_chunks_size(chunks.get()) - 1;
        size_t       count = 0;
        const auto   rest = mtmd_input_chunk_get_tokens_text(mtmd_input_chunks_get(chunks.get(), last), &count);
        if (rest == nullptr || count == 0) {
            throw item_error("images: no text follows the last one");
        }
        llama_pos at = 0;
        seen_prompt found;
        for (size_t i = 0; i < last; i++) {
            const mtmd_input_chunk * chunk = mtmd_input_chunks_get(chunks.get(), i);
            process(chunk, id, at);
            size_t     words = 0;
            const auto text_tokens = mtmd_input_chunk_get_tokens_text(chunk, &words);
            if (text_tokens != nullptr) {
                found.before.insert(found.before.end(), text_tokens, text_tokens + words);
            } else {
                found.before.resize(found.before.size() + mtmd_input_chunk_get_n_tokens(chunk), LLAMA_TOKEN_NULL);
            }
        }
        found.rest.assign(rest, rest + count);
        found.length     = at;
        found.tokens     = static_cast<int32_t>(tokens);
        found.more_cells = found.tokens - static_cast<int32_t>(count) - at;
        return found;
    }

    image_rows encode(const std::string & image) override {
        const mtmd::input_chunks_ptr chunks = tokenized(marker(), { image });
        image_rows found = { {}, static_cast<size_t>(llama_model_n_embd_inp(engine_.model())), {} };
        for (size_t i = 0; i < mtmd_input_chunks_size(chunks.get()); i++) {
            const mtmd_input_chunk * chunk = mtmd_input_chunks_get(chunks.get(), i);
            if (mtmd_input_chunk_get_type(chunk) == MTMD_INPUT_CHUNK_TYPE_TEXT) {
                continue;
            }
            input_                       = {};
            const mtmd::batch_ptr batch  = encoded(chunk);
            const float *         values = mtmd_batch_get_output_embd(batch.get(), chunk);
            found.inputs.push_back(std::move(input_));
            found.values.insert(found.values.end(), values,
                                values + found.columns * mtmd_input_chunk_get_n_tokens(chunk));
        }
        return found;
    }

  private:
    // An encoder's graph begins with a tensor of this name, whatever its kind.
    static bool note_input(ggml_tensor * node, bool ask, void * user_data) {
        seeing & self = *static_cast<seeing *>(user_data);
        for (int i = 0; ask && i < GGML_MAX_SRC && self.input_.shape.empty(); i++) {
            const ggml_tensor * from = node->src[i];
            if (from != nullptr && strcmp(from->name, "inp_raw") == 0) {
                self.input_.shape.assign(from->ne, from->ne + 3);
                self.input_.values.resize(static_cast<size_t>(ggml_nelements(from)));
                ggml_backend_tensor_get(from, self.input_.values.data(), 0, ggml_nbytes(from));
            }
        }
        return !ask;
    }

    mtmd::input_chunks_ptr tokenized(const std::string & text, const std::vector<std::string> & images) {
        std::vector<mtmd::bitmap>        bitmaps;
        std::vector<const mtmd_bitmap *> given;
        for (const std::string & each : images) {
            if (each.find('/') != std::string::npos) {
                throw item_error("images: " + each + " is not a name in the folder of --images");
            }
            const std::string path = folder_ + "/" + each;
            bitmaps.emplace_back(
                mtmd_helper_bitmap_init_from_file(mtmd_.get(), path.c_str(), false, mtmd_helper_init_opt_default())
                    .bitmap);
            if (!bitmaps.back().ptr) {
                throw item_error("images: llama.cpp cannot read " + each);
            }
            given.push_back(bitmaps.back().ptr.get());
        }
        mtmd::input_chunks_ptr chunks(mtmd_input_chunks_init());
        const mtmd_input_text  prompt = { text.data(), text.size(), true, true };
        const int32_t result = mtmd_tokenize(mtmd_.get(), chunks.get(), &prompt, given.data(), given.size());
        if (result != 0 || mtmd_input_chunks_size(chunks.get()) == 0) {
            throw item_error("images: llama.cpp cannot prepare them, or the text itself has " + marker());
        }
        return chunks;
    }

    // Leaves in ``at`` where the next chunk begins.
    void process(const mtmd_input_chunk * chunk, llama_seq_id id, llama_pos & at) {
        const int32_t pass = engine_.pass_tokens();
        int32_t       result;
        if (mtmd_input_chunk_get_type(chunk) == MTMD_INPUT_CHUNK_TYPE_TEXT) {
            result = mtmd_helper_eval_chunk_single(mtmd_.get(), engine_.context(), chunk, at, id, pass, false, &at);
        } else {
            const mtmd::batch_ptr batch = encoded(chunk);
            result = mtmd_helper_decode_image_chunk(mtmd_.get(), engine_.context(), chunk,
                                                    mtmd_batch_get_output_embd(batch.get(), chunk), at, id, pass,
                                                    &at, nullptr, nullptr);
        }
        if (result != 0) {
            throw engine_error("llama.cpp could not process an image's tokens (" + std::to_string(result) + ")");
        }
    }

    mtmd::batch_ptr encoded(const mtmd_input_chunk * chunk) {
        mtmd::batch_ptr batch(mtmd_batch_init(mtmd_.get()));
        if (mtmd_batch_add_chunk(batch.get(), chunk) != 0 || mtmd_batch_encode(batch.get()) != 0) {
            throw engine_error("llama.cpp could not encode an image");
        }
        return batch;
    }

    const engine &    engine_;
    std::string       folder_;
    encoder_input     input_; // of what was encoded last
    mtmd::context_ptr mtmd_;
};

} // namespace

std::unique_ptr<media> open_media(const engine & with, const common_params & wanted,
                                  const media_options & options) {
    return std::make_unique<seeing>(with, wanted, options);
}

image_embeddings::image_embeddings(item from, media * eyes, logits_file * file) : task(std::move(from)) {
    item_.allow({ "images" });
    const auto images = item_.get<std::vector<std::string>>("images");
    if (eyes == nullptr || file == nullptr || images.size() != 1) {
        throw item_error("images: one, with --mmproj, and --logits FILE for its rows");
    }
    const image_rows found = eyes->encode(images[0]);
    const auto       write = [&](const std::vector<float> & values) {
        const size_t  size_bytes   = values.size() * sizeof(float);
        const int64_t offset_bytes = file->reserve(size_bytes);
        file->write(values.data(), size_bytes, offset_bytes);
        return offset_bytes;
    };
    columns_      = found.columns;
    rows_         = found.values.size() / columns_;
    offset_bytes_ = write(found.values);
    for (const encoder_input & each : found.inputs) {
        inputs_.push_back({ { "shape", each.shape }, { "offset_bytes", write(each.values) } });
    }
    file->sync();
}

json image_embeddings::answer() const {
    json found            = item_.answer();
    found["offset_bytes"] = offset_bytes_;
    found["rows"]         = rows_;
    found["columns"]      = columns_;
    found["inputs"]       = inputs_;
    return found;
}
