// What llama.cpp's tools call in the place of libmtmd's own functions, where an image or a sound goes
// through what comes before the model. And what an encoder computes, where that is asked for.
//
// ARMLOAD_ENCODER holds the threads that encode, 0 for the program's own choice; -1, 0 or 1 for flash
// attention as llama.cpp chooses, off or on; and the size of each part of an image.

#include "armload_projector.h"
#include "armload_sound.h"
#include "armload_trace.h"
#include "download.h"
#include "mtmd-helper.h"
#include "mtmd.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#ifdef ARMLOAD_LISTS_ENCODERS
#include "armload_footprint.h"
#include "armload_log.h"
#include "armload_operations.h"
#include "common.h"

#include "clip-impl.h" // it defines less after common.h
#include "clip.h"

#include <chrono>
#include <sstream>
#include <unistd.h>
#endif

// Of an image that a client sends: its decoder takes three bytes for each pixel.
static const int64_t MOST_PIXELS = 64000000;

extern "C" int stbi_info_from_memory(const unsigned char * content, int bytes, int * width,
                                     int * height, int * channels);

static const char * const PREPROCESSING = "preprocessing";
static const char * const ENCODER       = "encoder";

namespace {

class stage {
  public:
    explicit stage(const char * name) : is_traced_(armload_stage_begin(&step_, name)) {}
    ~stage() {
        if (is_traced_) {
            armload_stage_end(&step_);
        }
    }
    stage(const stage &)             = delete;
    stage & operator=(const stage &) = delete;

  private:
    armload_step step_;
    bool         is_traced_;
};

// Of a program that answers one prompt: what its images became, before the model saw any of it.
struct {
    mtmd_context *                                        context = nullptr;
    size_t                                                width   = 0;
    std::map<const mtmd_input_chunk *, std::vector<float>> embeddings;
} prompt;

bool is_media(const mtmd_input_chunk * chunk) {
    return mtmd_input_chunk_get_type(chunk) != MTMD_INPUT_CHUNK_TYPE_TEXT;
}

int32_t encode(mtmd_batch * batch) {
    const stage encoding(ENCODER);
    return mtmd_batch_encode(batch);
}

// As many at a time as libmtmd takes. Returns libmtmd's own code.
int32_t encode_from(const mtmd_input_chunks * chunks, size_t & next) {
    const mtmd::batch_ptr               batch(mtmd_batch_init(prompt.context));
    std::vector<const mtmd_input_chunk *> taken;
    for (; next < mtmd_input_chunks_size(chunks); next++) {
        const mtmd_input_chunk * chunk = mtmd_input_chunks_get(chunks, next);
        if (!is_media(chunk) || mtmd_batch_add_chunk(batch.get(), chunk) != 0) {
            break;
        }
        taken.push_back(chunk);
    }
    const int32_t result = encode(batch.get());
    for (const mtmd_input_chunk * chunk : taken) {
        const float * values = result == 0 ? mtmd_batch_get_output_embd(batch.get(), chunk) : nullptr;
        if (values != nullptr) {
            prompt.embeddings[chunk].assign(values, values + prompt.width * mtmd_input_chunk_get_n_tokens(chunk));
        }
    }
    return result;
}

#ifdef ARMLOAD_LISTS_ENCODERS

// Nothing of the projector but its header is there: a part's graph is built, and not computed.
[[noreturn]] void answer_encoder(const char * path) {
    using Clock = std::chrono::steady_clock;
    std::istringstream words(getenv("ARMLOAD_ENCODER"));
    int                threads = 0, flash_attention = -1, width = 0, height = 0;
    char               between = 0;
    words >> threads >> flash_attention;
    clip_context_params settings{};
    settings.flash_attn_type  = static_cast<clip_flash_attn_type>(flash_attention);
    settings.no_alloc         = true;
    settings.image_min_tokens = settings.image_max_tokens = -1;
    const Clock::time_point start   = Clock::now();
    const clip_init_result  found   = clip_init(path, settings);
    const double            load_s  = std::chrono::duration<double>(Clock::now() - start).count();
    clip_ctx *              encoder = found.ctx_v != nullptr ? found.ctx_v : found.ctx_a;
    if (encoder == nullptr) {
        armload_finish_log();
        fprintf(stderr, "armload: the projector cannot be loaded\n");
        _exit(1);
    }
    std::vector<clip_image_f32_batch> parts;
    std::vector<int>                  tokens;
    while (words >> width >> between >> height) {
        clip_image_f32_batch one;
        one.is_audio = found.ctx_v == nullptr;
        one.entries.emplace_back();
        one.entries.back().set_size({ width, height }, false, one.is_audio);
        tokens.push_back(clip_n_output_tokens(encoder, &one.entries.back()));
        parts.push_back(std::move(one));
    }
    armload_answer_encoder_operations(
        tokens,
        [&](size_t part) {
            std::vector<float> embeddings;
            clip_image_batch_encode(encoder, 1, &parts[part], embeddings);
        },
        threads > 0 ? threads : common_cpu_get_num_math(), load_s);
}

const bool answers_encoder = (armload_answer_encoder = answer_encoder, true);

#endif

} // namespace

// A client must not make the server fetch what it names from the networks that the board reaches.
std::pair<long, std::vector<char>> armload_remote_get_content(const std::string &,
                                                              const common_remote_params &) {
    return { 403, {} };
}

extern "C" {

// It comes before the first step, and knows how many threads compute.
mtmd_context * armload_mtmd_init_from_file(const char * path, const llama_model * model,
                                           const mtmd_context_params settings) {
    mtmd_context * context = mtmd_init_from_file(path, model, settings);
    armload_trace_begin_stages(settings.n_threads);
    prompt.context = context;
    prompt.width   = static_cast<size_t>(llama_model_n_embd_inp(model));
    return context;
}

mtmd_helper_bitmap_wrapper armload_mtmd_helper_bitmap_init_from_file(const mtmd_context * context,
                                                                     const char * path,
                                                                     bool is_placeholder,
                                                                     mtmd_helper_init_opt settings) {
    const stage reading(PREPROCESSING);
    return mtmd_helper_bitmap_init_from_file(context, path, is_placeholder, settings);
}

mtmd_helper_bitmap_wrapper armload_mtmd_helper_bitmap_init_from_buf(const mtmd_context * context,
                                                                    const unsigned char * content,
                                                                    size_t bytes, bool is_placeholder,
                                                                    mtmd_helper_init_opt settings) {
    int width    = 0;
    int height   = 0;
    int channels = 0;
    if (bytes <= INT32_MAX &&
        stbi_info_from_memory(content, static_cast<int>(bytes), &width, &height, &channels) != 0 &&
        static_cast<int64_t>(width) * height > MOST_PIXELS) {
        fprintf(stderr, "armload: refused an image of %d x %d pixels\n", width, height);
        return {};
    }
    if (armload_is_long_sound(content, bytes)) {
        fprintf(stderr, "armload: refused a sound of more than ten minutes, or of unknown length\n");
        return {};
    }
    const stage reading(PREPROCESSING);
    return mtmd_helper_bitmap_init_from_buf(context, content, bytes, is_placeholder, settings);
}

// A text alone is tokenized in no time, and is no stage.
int32_t armload_mtmd_tokenize(const mtmd_context * context, mtmd_input_chunks * output,
                              const mtmd_input_text * text, const mtmd_bitmap * const * bitmaps,
                              size_t count) {
    if (count == 0) {
        return mtmd_tokenize(context, output, text, bitmaps, count);
    }
    const stage preparing(PREPROCESSING);
    return mtmd_tokenize(context, output, text, bitmaps, count);
}

int32_t armload_mtmd_tokenize_from_parts(const mtmd_context * context, mtmd_input_chunks * output,
                                         const mtmd_input_part * const * parts, size_t count,
                                         bool add_special) {
    const stage preparing(PREPROCESSING);
    return mtmd_tokenize_from_parts(context, output, parts, count, add_special);
}

int32_t armload_mtmd_batch_encode(mtmd_batch * batch) {
    return encode(batch);
}

// Encodes all images of the only prompt before the model sees any of it. Then the projector is
// released, and what it took is there for the model's weights, of which as many stay in memory as
// fit when the first graph is computed. A program that is not traced may have more prompts.
int32_t armload_mtmd_tokenize_only_prompt(const mtmd_context * context, mtmd_input_chunks * output,
                                          const mtmd_input_part * const * parts, size_t count,
                                          bool add_special) {
    int32_t result = armload_mtmd_tokenize_from_parts(context, output, parts, count, add_special);
    if (result != 0 || getenv("ARMLOAD_TRACE") == nullptr) {
        return result;
    }
    for (size_t i = 0; result == 0 && i < mtmd_input_chunks_size(output);) {
        if (is_media(mtmd_input_chunks_get(output, i))) {
            result = encode_from(output, i);
        } else {
            i++;
        }
    }
    if (result == 0 && !prompt.embeddings.empty()) {
        armload_release_projector();
    }
    return result;
}

int32_t armload_mtmd_batch_encode_once(mtmd_batch * batch) {
    return prompt.embeddings.empty() ? encode(batch) : 0;
}

float * armload_mtmd_batch_get_encoded(mtmd_batch * batch, const mtmd_input_chunk * chunk) {
    const auto found = prompt.embeddings.find(chunk);
    return found != prompt.embeddings.end() ? found->second.data() : mtmd_batch_get_output_embd(batch, chunk);
}
}
