// What outlives the program: a line for each answer, and the rows of logits.

#pragma once

#include "item.h"

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

// Nothing further can be kept.
struct output_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class answers {
  public:
    // Takes standard output for itself: what anything else prints goes to standard error from now on.
    answers();

    // Throws output_error. When it returns, the line lies on storage.
    void write(const json & answer);

  private:
    int  file_;
    bool is_on_storage_;
};

class logits_file {
  public:
    // Throws output_error.
    explicit logits_file(const std::string & path);
    ~logits_file();
    logits_file(const logits_file &)             = delete;
    logits_file & operator=(const logits_file &) = delete;

    // A place of its own for each item, because the rows of several are computed at a time.
    int64_t reserve(size_t size_bytes);

    // Both throw output_error.
    void write(const void * content, size_t size_bytes, int64_t offset_bytes);
    void sync();

  private:
    std::string path_;
    int         file_;
    int64_t     end_bytes_;
};
