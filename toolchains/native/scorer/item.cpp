#include "item.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const int    MOST_LEVELS     = 100;
static const size_t MOST_LINE_BYTES = 16 << 20;

item item::parse(const std::string & line) {
    item       found;
    const auto is_kept = [&found](int level, json::parse_event_t event, const json &) {
        const bool begins = event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
        found.is_too_deep_ = found.is_too_deep_ || (begins && level >= MOST_LEVELS);
        return !begins || level < MOST_LEVELS;
    };
    try {
        found.content_ = json::parse(line, is_kept);
        found.id_      = found.content_.at("id").get<std::string>();
        found.kind_    = found.content_.at("kind").get<std::string>();
    } catch (const json::exception &) {
        throw item_error("not a JSON object with the texts id and kind");
    }
    return found;
}

void item::check_depth() const {
    if (is_too_deep_) {
        throw item_error("nested deeper than " + std::to_string(MOST_LEVELS) + " levels");
    }
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

static output_error failed(const std::string & where) {
    return output_error(where + ": " + strerror(errno));
}

item_lines::item_lines(const std::string & path) : path_(path), file_(fopen(path.c_str(), "re")) {
    if (file_ == nullptr) {
        throw input_error(path_ + ": " + strerror(errno));
    }
}

item_lines::~item_lines() {
    fclose(file_);
}

std::string item_lines::place() const {
    return path_ + ", line " + std::to_string(number_);
}

bool item_lines::next(std::string & line) {
    int letter;
    line.clear();
    number_++;
    while ((letter = getc_unlocked(file_)) != EOF && letter != '\n') {
        if (line.size() == MOST_LINE_BYTES) {
            throw input_error(place() + ": longer than " + std::to_string(MOST_LINE_BYTES) + " bytes");
        }
        line += static_cast<char>(letter);
    }
    if (letter == EOF && ferror(file_) != 0) {
        throw input_error(place() + ": " + strerror(errno));
    }
    return letter != EOF || !line.empty();
}

answers::answers() : file_(dup(STDOUT_FILENO)) {
    struct stat about;
    if (file_ < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0 || fstat(file_, &about) != 0) {
        throw failed("standard output");
    }
    is_on_storage_ = S_ISREG(about.st_mode);
}

void answers::write(const json & answer) {
    const std::string line = answer.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
    for (size_t done = 0; done < line.size();) {
        const ssize_t written = ::write(file_, line.data() + done, line.size() - done);
        if (written < 0 && errno != EINTR) {
            throw failed("standard output");
        }
        done += written > 0 ? static_cast<size_t>(written) : 0;
    }
    if (is_on_storage_ && fsync(file_) != 0) {
        throw failed("standard output");
    }
}

logits_file::logits_file(const std::string & path)
    : path_(path), file_(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)),
      end_bytes_(file_ < 0 ? -1 : lseek(file_, 0, SEEK_END)) {
    if (end_bytes_ < 0) {
        throw failed(path);
    }
}

logits_file::~logits_file() {
    close(file_);
}

int64_t logits_file::reserve(size_t size_bytes) {
    const int64_t begin = end_bytes_;
    end_bytes_ += static_cast<int64_t>(size_bytes);
    return begin;
}

void logits_file::write(const void * content, size_t size_bytes, int64_t offset_bytes) {
    const char * bytes = static_cast<const char *>(content);
    for (size_t done = 0; done < size_bytes;) {
        const auto    offset  = static_cast<off_t>(offset_bytes + static_cast<int64_t>(done));
        const ssize_t written = pwrite(file_, bytes + done, size_bytes - done, offset);
        if (written < 0 && errno != EINTR) {
            throw failed(path_);
        }
        done += written > 0 ? static_cast<size_t>(written) : 0;
    }
}

void logits_file::sync() {
    if (fsync(file_) != 0) {
        throw failed(path_);
    }
}
