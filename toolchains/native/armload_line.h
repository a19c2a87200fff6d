// One line of a trace, for everything of ours that writes one.

#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

// Appends a line in one write: a program that is killed leaves whole lines. Storage that fills takes
// the beginning of one: *is_cut says so, and that is ended before the next line, once there is space.
// It stays, because whoever follows the file may have read it. Returns false, with errno, when the
// line is lost.
static inline bool armload_put_line(int file, bool * is_cut, const char * line, size_t length) {
    if (*is_cut && write(file, "\n", 1) != 1) {
        return false;
    }
    *is_cut     = false;
    size_t done = 0;
    while (done < length) {
        const ssize_t count = write(file, line + done, length - done);
        if (count > 0) {
            done += (size_t) count;
        } else if (count == 0 || errno != EINTR) {
            *is_cut = done > 0;
            return false;
        }
    }
    return true;
}
