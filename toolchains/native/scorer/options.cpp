#include "options.h"

#include "arg.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

static void print_usage(int, char ** argv) {
    printf("\nAnswers items, one JSON object on each line, and prints a line for each answer.\n\n"
           "  %s -m MODEL --items FILE [--logits FILE] [-c TOKENS] [-np ITEMS] [OPTIONS]\n\n"
           "  --items FILE     what to answer\n"
           "  --logits FILE    where items of the kind logits append theirs\n"
           "  -c TOKENS        context of each item\n"
           "  -np ITEMS        how many are answered at a time\n\n",
           argv[0]);
}

[[noreturn]] static void refuse(const char * why) {
    fprintf(stderr, "armload-score: %s\n", why);
    exit(2);
}

options parse_options(int argc, char ** argv) {
    options             found;
    std::vector<char *> others = { argv[0] };
    for (int i = 1; i < argc; i++) {
        const std::string word = argv[i];
        if (word != "--items" && word != "--logits") {
            others.push_back(argv[i]);
        } else if (++i == argc) {
            refuse(("the file is missing after " + word).c_str());
        } else {
            (word == "--items" ? found.items : found.logits) = argv[i];
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
