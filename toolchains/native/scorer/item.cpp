#include "item.h"

item item::parse(const std::string & line) {
    item found;
    try {
        found.content_ = json::parse(line);
        found.id_      = found.content_.at("id").get<std::string>();
        found.kind_    = found.content_.at("kind").get<std::string>();
    } catch (const json::exception &) {
        throw item_error("not a JSON object with the texts id and kind");
    }
    return found;
}

void item::allow(std::initializer_list<const char *> keys) const {
    for (const auto & [key, value] : content_.items()) {
        bool is_known = key == "id" || key == "kind";
        for (const char * allowed : keys) {
            is_known = is_known || key == allowed;
        }
        if (!is_known) {
            throw item_error(key + ": no such key in an item of kind " + kind_);
        }
    }
}

bool item::has(const char * key) const {
    return content_.contains(key) && !content_.at(key).is_null();
}

int32_t item::count(const char * key, int32_t least, int32_t most) const {
    const auto found = get<double>(key);
    if (found < least || found > most || found != static_cast<int32_t>(found)) {
        throw item_error(std::string(key) + ": must be a whole number from " + std::to_string(least) +
                         " to " + std::to_string(most));
    }
    return static_cast<int32_t>(found);
}

json item::answer() const {
    return { { "id", id_ }, { "kind", kind_ } };
}
