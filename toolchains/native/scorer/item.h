// One line of the items: what is asked of the model.

#pragma once

#include <nlohmann/json.hpp>

#include <initializer_list>
#include <stdexcept>
#include <string>

using json = nlohmann::ordered_json;

// Why one item cannot be answered; the others can.
struct item_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class item {
  public:
    // Throws item_error if the line is no item: then it cannot be answered at all.
    static item parse(const std::string & line);

    const std::string & id() const { return id_; }
    const std::string & kind() const { return kind_; }

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
};
