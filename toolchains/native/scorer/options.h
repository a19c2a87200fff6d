// The command line.

#pragma once

#include "common.h"

#include <string>

struct options {
    common_params engine; // in llama.cpp's own spelling; n_ctx is that of one sequence
    std::string   items;
    std::string   logits; // empty without --logits
};

// Prints what is wrong, or the help, and ends the program then.
options parse_options(int argc, char ** argv);
