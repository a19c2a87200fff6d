#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "armload_environment.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS_BYTES = 1 << 17, FILE_BYTES = 1 << 13 };

// Reads a file from its beginning, as far as there is room, and ends it with a zero.
static size_t content_of(const char * path, char * content, size_t room) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    size_t    size = 0;
    ssize_t   more = file < 0 ? 0 : 1;
    while (more > 0 && size < room - 1) {
        more = read(file, content + size, room - 1 - size);
        size += more > 0 ? (size_t) more : 0;
    }
    if (file >= 0) {
        close(file);
    }
    content[size] = '\0';
    return size;
}

static const char * alias_in(const char * words, size_t size) {
    for (size_t at = 0; at < size; at += strlen(words + at) + 1) {
        const size_t next = at + strlen(words + at) + 1;
        if (strcmp(words + at, "--alias") == 0 && next < size) {
            return words + next;
        }
    }
    return NULL;
}

void armload_set_own_environment(void) {
    static char words[WORDS_BYTES];
    static char lines[FILE_BYTES];
    char        path[PATH_MAX];
    const char * folder = getenv("ARMLOAD_OWN_ENVIRONMENT");
    if (folder == NULL) {
        return;
    }
    const char * alias  = alias_in(words, content_of("/proc/self/cmdline", words, sizeof(words)));
    const int    length = alias == NULL || strchr(alias, '/') != NULL
                              ? -1
                              : snprintf(path, sizeof(path), "%s/%s", folder, alias);
    if (length < 0 || length >= (int) sizeof(path)) {
        return;
    }
    content_of(path, lines, sizeof(lines));
    char * rest = NULL;
    for (char * line = strtok_r(lines, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        char * value = strchr(line, '=');
        if (value != NULL && strncmp(line, "ARMLOAD_", 8) == 0) {
            *value = '\0';
            setenv(line, value + 1, 1);
        }
    }
}
