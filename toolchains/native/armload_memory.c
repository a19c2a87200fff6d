#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "armload_memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_BYTES = 8192, GROUP_BYTES = 4096, PATH_BYTES = GROUP_BYTES + 64 };

static bool read_file(const char * path, char * text) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    const ssize_t count = read(file, text, TEXT_BYTES - 1);
    close(file);
    text[count > 0 ? count : 0] = '\0';
    return count > 0;
}

// The number after a key at the beginning of a line; 0 without it.
static int64_t number_of(const char * text, const char * key) {
    const size_t length = strlen(key);
    for (const char * line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0) {
            return strtoll(line + length, NULL, 10);
        }
    }
    return 0;
}

struct controller {
    const char * limit;
    const char * used;
    const char * prefix; // of the counts that include the groups inside
};

static const struct controller version_1 = { "memory.limit_in_bytes", "memory.usage_in_bytes", "total_" };
static const struct controller version_2 = { "memory.max", "memory.current", "" };

static int64_t counted(const char * stat, const char * prefix, const char * name) {
    char key[64];
    snprintf(key, sizeof(key), "%s%s ", prefix, name);
    return number_of(stat, key);
}

static void bound_by_group(const char * group, const struct controller * names,
                           struct armload_memory * memory) {
    char path[PATH_BYTES];
    char text[TEXT_BYTES];
    snprintf(path, sizeof(path), "%s/%s", group, names->limit);
    if (!read_file(path, text) || strncmp(text, "max", 3) == 0) {
        return;
    }
    const int64_t limit = strtoll(text, NULL, 10);
    if (limit <= 0 || limit >= memory->total_bytes) {
        return;
    }
    memory->total_bytes = limit;
    snprintf(path, sizeof(path), "%s/%s", group, names->used);
    if (!read_file(path, text)) {
        return;
    }
    const int64_t used = strtoll(text, NULL, 10);
    snprintf(path, sizeof(path), "%s/memory.stat", group);
    int64_t cache = 0;
    if (read_file(path, text)) {
        cache = counted(text, names->prefix, "inactive_file") + counted(text, names->prefix, "active_file")
              + counted(text, names->prefix, "slab_reclaimable");
    }
    const int64_t left = limit - used + cache;
    if (left < memory->available_bytes) {
        memory->available_bytes = left > 0 ? left : 0;
    }
}

// A group is bound by those around it too.
static void bound_by_groups(const char * mount, const char * group, const struct controller * names,
                            struct armload_memory * memory) {
    char path[GROUP_BYTES];
    if (access(mount, X_OK) != 0) {
        return;
    }
    const size_t top = (size_t) snprintf(path, sizeof(path), "%s%s", mount, group);
    if (top >= sizeof(path)) {
        return;
    }
    for (;;) {
        bound_by_group(path, names, memory);
        char * slash = strrchr(path, '/');
        if (slash == NULL || (size_t) (slash - path) < strlen(mount)) {
            return;
        }
        *slash = '\0';
    }
}

static void bound_by_control_groups(struct armload_memory * memory) {
    char text[TEXT_BYTES];
    if (!read_file("/proc/self/cgroup", text)) {
        return;
    }
    char * rest;
    for (char * line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        char * controllers = strchr(line, ':');
        char * group       = controllers == NULL ? NULL : strchr(++controllers, ':');
        if (group == NULL) {
            continue;
        }
        *group++ = '\0';
        if (strcmp(controllers, "memory") == 0) {
            bound_by_groups("/sys/fs/cgroup/memory", group, &version_1, memory);
            bound_by_groups("/dev/memcg", group, &version_1, memory);
        } else if (controllers[0] == '\0') {
            bound_by_groups("/sys/fs/cgroup", group, &version_2, memory);
            bound_by_groups("/sys/fs/cgroup/unified", group, &version_2, memory);
        }
    }
}

bool armload_read_memory(struct armload_memory * memory) {
    char text[TEXT_BYTES];
    if (!read_file("/proc/meminfo", text)) {
        return false;
    }
    memory->total_bytes     = number_of(text, "MemTotal:") * 1024;
    memory->available_bytes = number_of(text, "MemAvailable:") * 1024;
    memory->has_swap        = number_of(text, "SwapTotal:") > 0;
    bound_by_control_groups(memory);
    return memory->total_bytes > 0 && memory->available_bytes > 0;
}

int64_t armload_locked_bytes(void) {
    char text[TEXT_BYTES];
    return read_file("/proc/self/status", text) ? number_of(text, "VmLck:") * 1024 : 0;
}
