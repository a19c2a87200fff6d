#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "armload_trace_file.h"

#include "armload_environment.h"
#include "armload_line.h"

#include <limits.h>
#include <stdint.h>
#include <string.h>

static struct {
    int          file;
    const char * path;
    int64_t      limit_bytes; // 0: none
    int64_t      size_bytes;
    bool         has_head;
    bool         is_cut;
    bool         complained;
    size_t       head_length;
    char         head[ARMLOAD_LINE_BYTES];
} trace = { .file = -1 };

static void complain(const char * what) {
    if (!trace.complained) {
        trace.complained = true;
        fprintf(stderr, "armload: the trace %s: %s: %s\n", trace.path, what, strerror(errno));
    }
}

__attribute__((constructor)) static void open_first(void) {
    armload_set_own_environment();
    const char * limit = getenv("ARMLOAD_TRACE_BYTES");
    trace.limit_bytes  = limit == NULL ? 0 : strtoll(limit, NULL, 10);
    trace.file         = armload_open_trace(&trace.path);
    if (trace.file < 0 && trace.path != NULL) {
        complain("cannot be opened");
    }
}

bool armload_trace_wanted(void) {
    return trace.file >= 0;
}

static bool put(const char * line, size_t length) {
    if (!armload_put_line(trace.file, &trace.is_cut, line, length)) {
        complain("cannot be written");
        return false;
    }
    trace.size_bytes += (int64_t) length;
    return true;
}

static void put_head(void) {
    if (!trace.has_head) {
        trace.has_head = put(trace.head, trace.head_length);
    }
}

void armload_trace_head(const char * line, size_t length) {
    memcpy(trace.head, line, length);
    trace.head_length = length;
    put_head();
}

void armload_trace_put(const char * line, size_t length) {
    put_head();
    if (trace.has_head) {
        put(line, length);
    }
}

bool armload_trace_rotate(void) {
    if (trace.limit_bytes <= 0 || trace.size_bytes < trace.limit_bytes) {
        return false;
    }
    trace.size_bytes = 0; // where it cannot be renamed now, it may be when it has grown again
    char before[PATH_MAX];
    const int length = snprintf(before, sizeof(before), "%s.1", trace.path);
    if (length >= (int) sizeof(before) || rename(trace.path, before) != 0) {
        complain("cannot be renamed");
        return false;
    }
    const int file = armload_open_trace(&trace.path);
    if (file < 0) {
        complain("cannot be opened");
        return false;
    }
    close(trace.file);
    trace.file     = file;
    trace.is_cut   = false;
    trace.has_head = false;
    return true;
}
