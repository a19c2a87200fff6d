// From the bytes that a model writes to text.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

struct clean_text {
    std::string         text; // UTF-8
    std::vector<size_t> ends; // for each end that was given, where it is in text
};

// What is no UTF-8 becomes U+FFFD, one for each maximal part of a character, as in Python. A character
// that is not complete at the end is left out: the next token would complete it, so that a text
// that was cut is the beginning of one that was not.
clean_text cleaned(const std::string & bytes, const std::vector<size_t> & ends);
