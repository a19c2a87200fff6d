#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static output_error failed(const std::string & where) {
    return output_error(where + ": " + strerror(errno));
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
