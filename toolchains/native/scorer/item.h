// What is asked of the model and what comes back: a line for each item, a line for each answer, and the rows of
// logits.

#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <stdexcept>
#include <string>

using json = nlohmann::ordered_json;

// Why one item cannot be answered; the others can.
struct item_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// What is asked of the model.
class item {
  public:
    // Throws item_error if the line is no item: then it cannot be answered at all.
    static item parse(const std::string & line);

    const std::string & id() const { return id_; }
    const std::string & kind() const { return kind_; }

    // Throws item_error if something in it was left out when it was parsed, because it is nested too deep: copying or
    // writing it would take a stack of any size.
    void check_depth() const;

    // Throws item_error if there are keys beside id, kind and these.
    void allow(std::initializer_list<const char *> keys) const;

    bool has(const char * key) const;
    bool is_list(const char * key) const { return has(key) && content_.at(key).is_array(); }

    // Throws item_error if it is missing or of another type.
    template <typename T> T get(const char * key) const {
        if (!has(key)) {
            throw item_error(std::string(key) + ": missing");
        }
        try {
            return content_.at(key).get<T>();
        } catch (const json::exception &) {
            throw item_error(std::string(key) + ": of the wrong type");
        }
    }

    template <typename T> T get(const char * key, T otherwise) const {
        return has(key) ? get<T>(key) : otherwise;
    }

    // A whole number within bounds.
    int32_t count(const char * key, int32_t least, int32_t most) const;

    // The beginning of an answer.
    json answer() const;

  private:
    std::string id_;
    std::string kind_;
    json        content_;
    bool        is_too_deep_ = false;
};

// Nothing further can be asked.
struct input_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The lines of a file, each of bounded length.
class item_lines {
  public:
    // Throws input_error if the file cannot be opened.
    explicit item_lines(const std::string & path);
    ~item_lines();
    item_lines(const item_lines &)             = delete;
    item_lines & operator=(const item_lines &) = delete;

    // Returns false at the end of the file. Throws input_error if it cannot be read, or has a line without end.
    bool next(std::string & line);

    // Where the latest line is, for messages.
    std::string place() const;

  private:
    std::string path_;
    FILE *      file_;
    int64_t     number_ = 0;
};

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
