// One line of a trace, for everything of ours that writes one.

#pragma once

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    ARMLOAD_TRACE_FORMAT = 2,
    ARMLOAD_LINE_BYTES   = 8192,
    ARMLOAD_BLOCK_BYTES  = 512, // of ru_inblock, whatever the disk's block is
};

// Returns the trace's file; -1 with *path NULL if none is wanted, with errno if it cannot be opened.
static inline int armload_open_trace(const char ** path) {
    *path = getenv("ARMLOAD_TRACE");
    if (*path == NULL || (*path)[0] == '\0') {
        *path = NULL;
        return -1;
    }
    return open(*path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
}

__attribute__((format(printf, 3, 4))) static inline size_t armload_append(char * line, size_t length,
                                                                          const char * format, ...) {
    va_list values;
    va_start(values, format);
    const int added = vsnprintf(line + length, ARMLOAD_LINE_BYTES - length, format, values);
    va_end(values);
    return length + (size_t) added;
}

// As the kernel writes a set of cores: 0-3,6.
static inline size_t armload_append_cores(char * line, size_t length, const char * name,
                                          const cpu_set_t * cores) {
    length = armload_append(line, length, ",\"%s\":\"", name);
    const char * comma = "";
    for (int first = 0; first < CPU_SETSIZE; first++) {
        if (!CPU_ISSET(first, cores)) {
            continue;
        }
        int last = first;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cores)) {
            last++;
        }
        length = armload_append(line, length, "%s%d", comma, first);
        if (last > first) {
            length = armload_append(line, length, "-%d", last);
        }
        comma = ",";
        first = last;
    }
    return armload_append(line, length, "\"");
}

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
