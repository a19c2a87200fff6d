// armload-score: answers items with a model that is loaded once.

#include "engine.h"
#include "generation.h"
#include "media.h"
#include "scoring.h"
#include "task.h"

#include "arg.h"
#include "common.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// The command line.
struct options {
    common_params engine; // in llama.cpp's own spelling; n_ctx is that of one sequence
    std::string   items;
    std::string   logits; // empty without --logits
    bool          is_vocabulary = false; // the file need have no weights
    media_options media;
};

static void print_usage(int, char ** argv) {
    printf("\nAnswers items, one JSON object on each line, and prints a line for each answer.\n\n"
           "  %s -m MODEL --items FILE [--logits FILE] [-c TOKENS] [-np ITEMS] [OPTIONS]\n\n"
           "  --items FILE     what to answer\n"
           "  --logits FILE    where items of the kind logits append theirs\n"
           "  --vocab-only     load no weights, and answer items of the kind tokenize alone\n"
#ifdef ARMLOAD_HAS_MEDIA
           "  --mmproj FILE    the projector by which the model sees\n"
           "  --images FOLDER  where the images of items are\n"
           "  --image-max-tokens TOKENS\n"
           "                   of one image\n"
#endif
           "  -c TOKENS        context of each item\n"
           "  -np ITEMS        how many are answered at a time\n\n",
           argv[0]);
}

[[noreturn]] static void refuse(const char * why) {
    fprintf(stderr, "armload-score: %s\n", why);
    exit(2);
}

// Returns where an option's value belongs; none for llama.cpp's own options.
static std::string * file_of(options & found, const std::string & word) {
    if (word == "--items") {
        return &found.items;
    }
    if (word == "--logits") {
        return &found.logits;
    }
#ifdef ARMLOAD_HAS_MEDIA
    if (word == "--mmproj") {
        return &found.media.projector;
    }
    if (word == "--images") {
        return &found.media.folder;
    }
    if (word == "--image-max-tokens") {
        return &found.media.most_tokens;
    }
#endif
    return nullptr;
}

// Prints what is wrong, or the help, and ends the program then.
static options parse_options(int argc, char ** argv) {
    options             found;
    std::vector<char *> others = { argv[0] };
    for (int i = 1; i < argc; i++) {
        const std::string word = argv[i];
        if (word == "--vocab-only") {
            found.is_vocabulary = true;
        } else if (std::string * const file = file_of(found, word); file == nullptr) {
            others.push_back(argv[i]);
        } else if (++i == argc) {
            refuse((word + ": the value is missing").c_str());
        } else {
            *file = argv[i];
        }
    }
    common_params & engine = found.engine;
    const auto      count  = static_cast<int>(others.size());
    if (!common_params_parse(count, others.data(), engine, LLAMA_EXAMPLE_COMMON, print_usage)) {
        exit(2);
    }
    if (found.items.empty()) {
        refuse("use --items to name the file with the items");
    }
    if (engine.model.path.empty()) {
        refuse("use -m to name the model");
    }
    if (engine.n_parallel < 1) {
        refuse("-np must be 1 or more");
    }
    return found;
}

static void log_doubts(ggml_log_level level, const char * text, void *) {
    if (level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR) {
        fputs(text, stderr);
    }
}

namespace {

class scorer {
  public:
    explicit scorer(const options & wanted)
        : engine_(wanted.engine), words_(engine_.model()), prompts_(engine_.model()),
          ids_(engine_.context(), 0, wanted.engine.n_parallel),
          spare_ids_(engine_.context(), wanted.engine.n_parallel, engine_.sequences()),
          lines_(wanted.items),
          most_at_a_time_(static_cast<size_t>(wanted.engine.n_parallel)) {
        if (!wanted.logits.empty()) {
            rows_.emplace(wanted.logits);
        }
#ifdef ARMLOAD_HAS_MEDIA
        if (!wanted.media.projector.empty()) {
            eyes_ = open_media(engine_, wanted.engine, wanted.media);
        }
#endif
    }

    // Returns whether every line was an item.
    bool run() {
        passes all(engine_.context(), engine_.pass_tokens(), engine_.pass_outputs());
        for (;;) {
            while (tasks_.size() < most_at_a_time_ && begin_next()) {
            }
            if (tasks_.empty()) {
                return bad_lines_ == 0;
            }
            all.run(tasks_);
            finish();
        }
    }

  private:
    bool begin_next() {
        std::string line;
        if (!lines_.next(line)) {
            return false;
        }
        if (line.empty()) {
            return true;
        }
        try {
            const item next = item::parse(line);
            begin(next);
        } catch (const item_error & error) {
            bad_lines_++;
            fprintf(stderr, "%s: %s\n", lines_.place().c_str(), error.what());
        }
        return true;
    }

    void begin(const item & next) {
        try {
            next.check_depth();
            std::unique_ptr<task> begun = task_of(next);
            if (begun->is_over()) {
                answers_.write(begun->outcome());
            } else {
                tasks_.push_back(std::move(begun));
            }
        } catch (const item_error & error) {
            answers_.write(refusal(next, error.what()));
        }
    }

    std::unique_ptr<task> task_of(const item & next) {
        const int32_t context = engine_.context_tokens();
        if (next.kind() == "generate") {
            return std::make_unique<generation>(next, words_, prompts_, eyes_.get(), ids_, context);
        }
        if (next.kind() == "likelihood") {
            return std::make_unique<likelihood>(next, words_, eyes_.get(), ids_, spare_ids_, context);
        }
        if (next.kind() == "logits") {
            return std::make_unique<raw_logits>(next, words_, prompts_, eyes_.get(), ids_, context,
                                                rows_ ? &*rows_ : nullptr);
        }
        if (next.kind() == "tokenize") {
            return std::make_unique<tokenization>(next, words_);
        }
#ifdef ARMLOAD_HAS_MEDIA
        if (next.kind() == "image-embeddings") {
            return std::make_unique<image_embeddings>(next, eyes_.get(), rows_ ? &*rows_ : nullptr);
        }
#endif
        throw item_error("kind: must be generate, likelihood, logits or tokenize");
    }

    void finish() {
        std::vector<std::unique_ptr<task>> unfinished;
        for (auto & each : tasks_) {
            if (each->is_over()) {
                answers_.write(each->outcome());
            } else {
                unfinished.push_back(std::move(each));
            }
        }
        tasks_ = std::move(unfinished);
        // The sequences of what has just finished are free for items that wait for one.
        for (const auto & each : tasks_) {
            if (each->waiting().empty()) {
                each->advance();
            }
        }
    }

    answers                            answers_;
    engine                             engine_;
    vocabulary                         words_;
    prompts                            prompts_;
    sequence_ids                       ids_;
    sequence_ids                       spare_ids_;
    item_lines                         lines_;
    std::optional<logits_file>         rows_;
    std::unique_ptr<media>             eyes_; // none where the model sees nothing
    size_t                             most_at_a_time_;
    std::vector<std::unique_ptr<task>> tasks_;
    int                                bad_lines_ = 0;
};

// Returns whether every line was an item.
bool tokenize_all(const options & wanted) {
    llama_model_params settings = llama_model_default_params();
    settings.vocab_only         = true;
    const llama_model_ptr model(llama_model_load_from_file(wanted.engine.model.path.c_str(), settings));
    if (!model) {
        throw engine_error(wanted.engine.model.path + ": llama.cpp cannot load this vocabulary");
    }
    const vocabulary words(model.get());
    answers          written;
    item_lines       lines(wanted.items);
    int              bad_lines = 0;
    for (std::string line; lines.next(line);) {
        if (line.empty()) {
            continue;
        }
        try {
            const item next = item::parse(line);
            try {
                if (next.kind() != "tokenize") {
                    throw item_error("kind: without weights, it must be tokenize");
                }
                next.check_depth();
                written.write(tokenization(next, words).outcome());
            } catch (const item_error & error) {
                written.write(refusal(next, error.what()));
            }
        } catch (const item_error & error) {
            bad_lines++;
            fprintf(stderr, "%s: %s\n", lines.place().c_str(), error.what());
        }
    }
    return bad_lines == 0;
}

} // namespace

int main(int argc, char ** argv) {
    const options wanted = parse_options(argc, argv);
    llama_log_set(log_doubts, nullptr);
    // Templates ask for the local date.
    setenv("TZ", "UTC0", 1);
    try {
        const bool is_whole = wanted.is_vocabulary ? tokenize_all(wanted) : scorer(wanted).run();
        return is_whole ? 0 : 1;
    } catch (const std::exception & error) {
        fprintf(stderr, "armload-score: %s\n", error.what());
        return 1;
    }
}
