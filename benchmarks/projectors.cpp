// How llama.cpp cuts a picture, what its encoder computes and takes of memory, and for how long; beside
// what armload predicts of them (docs/figures.md).
//
// Compiled with tools/mtmd of the pinned source, without mtmd-cli.cpp and mtmd-helper*.cpp, of which
// clip.cpp with -Dggml_backend_sched_reserve=counted_reserve, and linked with libllama and ggml.
//
//   projectors mmproj.gguf WIDTH HEIGHT THREADS [PASSES]
//
// Without PASSES, the graph of the first part is only reserved, and no weights are read.

#include "clip-impl.h"
#include "clip-model.h"
#include "clip.h"
#include "ggml-backend.h"
#include "mtmd-image.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>
#include <vector>

projector_type clip_get_projector_type(const clip_ctx * ctx);

static bool only_reserves = false;

extern "C" bool counted_reserve(ggml_backend_sched_t sched, ggml_cgraph * graph) {
    double products = 0, attention = 0;
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
        const ggml_tensor * node = ggml_graph_node(graph, i);
        if (node->op == GGML_OP_MUL_MAT) {
            products += static_cast<double>(ggml_nelements(node)) * static_cast<double>(node->src[0]->ne[0]);
        } else if (node->op == GGML_OP_FLASH_ATTN_EXT) {
            const ggml_tensor * query = node->src[0];
            attention += 2.0 * static_cast<double>(ggml_nelements(query)) * static_cast<double>(node->src[1]->ne[1]);
        }
    }
    const bool is_reserved = ggml_backend_sched_reserve(sched, graph);
    printf("products=%.0f attention=%.0f graph_bytes=%zu\n", products, attention,
           ggml_backend_sched_get_buffer_size(sched, ggml_backend_sched_get_backend(sched, 0)));
    fflush(stdout);
    if (only_reserves) {
        _exit(0);
    }
    return is_reserved;
}

static std::unique_ptr<mtmd_image_preprocessor> preprocessor_of(const clip_ctx * encoder) {
    switch (clip_get_projector_type(encoder)) {
        case PROJECTOR_TYPE_GEMMA3:
            return std::make_unique<mtmd_image_preprocessor_fixed_size>(encoder);
        case PROJECTOR_TYPE_IDEFICS3:
            return std::make_unique<mtmd_image_preprocessor_idefics3>(encoder);
        case PROJECTOR_TYPE_LFM2:
            return std::make_unique<mtmd_image_preprocessor_lfm2>(encoder);
        default:
            return std::make_unique<mtmd_image_preprocessor_dyn_size>(encoder);
    }
}

int main(int argc, char ** argv) {
    if (argc < 5) {
        return 2;
    }
    const int width = atoi(argv[2]), height = atoi(argv[3]), threads = atoi(argv[4]);
    const int passes = argc > 5 ? atoi(argv[5]) : 0;
    only_reserves    = passes == 0;
    clip_context_params params{};
    params.flash_attn_type  = CLIP_FLASH_ATTN_TYPE_AUTO;
    params.no_alloc         = only_reserves;
    params.image_min_tokens = params.image_max_tokens = -1;
    const clip_init_result found   = clip_init(argv[1], params);
    clip_ctx *             encoder = found.ctx_v != nullptr ? found.ctx_v : found.ctx_a;
    if (encoder == nullptr) {
        return 1;
    }
    std::vector<clip_image_f32> parts;
    if (found.ctx_v != nullptr) {
        std::vector<uint8_t> pixels(static_cast<size_t>(3) * width * height);
        for (size_t i = 0; i < pixels.size(); ++i) {
            pixels[i] = static_cast<uint8_t>((i * 2654435761u) >> 24);
        }
        clip_image_u8 picture;
        picture.set_size({ width, height }, false);
        picture.cpy_buf(pixels);
        mtmd_image_preproc_out cut = preprocessor_of(encoder)->preprocess(picture);
        parts                      = cut.entries;
        if (cut.has_overview()) {
            parts.push_back(cut.overview);
        }
    } else {
        parts.emplace_back();
        parts.back().set_size({ 3000, clip_get_hparams(encoder)->n_mel_bins }, false, true);
    }
    std::map<std::pair<int, int>, int> counts;
    int                                tokens = 0;
    for (const clip_image_f32 & part : parts) {
        ++counts[{ part.nx(), part.ny() }];
        tokens += clip_n_output_tokens(encoder, &part);
    }
    for (const auto & [size, count] : counts) {
        printf("part=%dx%d count=%d\n", size.first, size.second, count);
    }
    printf("tokens=%d width=%d\n", tokens, clip_n_mmproj_embd(encoder));
    clip_image_f32_batch batch;
    batch.is_audio = found.ctx_v == nullptr;
    batch.entries.push_back(parts.front());
    std::vector<float> embeddings;
    for (int i = 0; i < passes || only_reserves; ++i) {
        const auto start = std::chrono::steady_clock::now();
        if (!clip_image_batch_encode(encoder, threads, &batch, embeddings)) {
            return 1;
        }
        printf("pass_s=%.4f\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    printf("peak_bytes=%ld\n", used.ru_maxrss * 1024);
}
