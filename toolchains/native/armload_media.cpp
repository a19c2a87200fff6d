// What llama.cpp's tools call in the place of libmtmd's own functions, where an image or a sound goes
// through what comes before the model.

#include "armload_trace.h"
#include "download.h"
#include "mtmd-helper.h"
#include "mtmd.h"

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

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
    const stage encoding(ENCODER);
    return mtmd_batch_encode(batch);
}
}
