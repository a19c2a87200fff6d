// How much memory this process may still take: what the machine has, or what the tightest of the
// control groups around it leaves.

#pragma once

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ARMLOAD_FILE_BYTES = 8192, ARMLOAD_PATH_BYTES = 4096 };

struct armload_memory {
    int64_t total_bytes;
    int64_t available_bytes; // without swapping; page cache can be reclaimed
    bool    has_swap;
};

static inline bool armload_read_file(const char * path, char * text) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    const ssize_t count = read(file, text, ARMLOAD_FILE_BYTES - 1);
    close(file);
    text[count > 0 ? count : 0] = '\0';
    return count > 0;
}

// The number after a key at the beginning of a line; otherwise what is given.
static inline int64_t armload_number_of(const char * text, const char * key, int64_t otherwise) {
    const size_t length = strlen(key);
    for (const char * line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0) {
            return strtoll(line + length, NULL, 10);
        }
    }
    return otherwise;
}

// The number in a control group's file; -1 for none, or for "max".
static inline int64_t armload_group_number(const char * group, const char * name) {
    char path[ARMLOAD_PATH_BYTES + 64];
    char text[ARMLOAD_FILE_BYTES];
    snprintf(path, sizeof(path), "%s/%s", group, name);
    if (!armload_read_file(path, text) || text[0] < '0' || text[0] > '9') {
        return -1;
    }
    return strtoll(text, NULL, 10);
}

// With version 1, the plain counts leave out the groups inside.
static inline int64_t armload_cached_bytes(const char * stat) {
    static const char * const names[] = { "inactive_file ", "active_file ", "slab_reclaimable " };
    int64_t                   sum     = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char total[64];
        snprintf(total, sizeof(total), "total_%s", names[i]);
        sum += armload_number_of(stat, total, armload_number_of(stat, names[i], 0));
    }
    return sum;
}

static inline int64_t armload_lower(int64_t one, int64_t other) {
    return one < 0 || (other >= 0 && other < one) ? other : one;
}

struct armload_group {
    int64_t limit_bytes; // -1 while there is none
    int64_t left_bytes;
};

static inline void armload_look_at_group(const char * path, struct armload_group * tightest) {
    char    stat[ARMLOAD_FILE_BYTES] = "";
    char    stat_path[ARMLOAD_PATH_BYTES + 64];
    int64_t limit_bytes = armload_group_number(path, "memory.max");
    limit_bytes = armload_lower(limit_bytes, armload_group_number(path, "memory.high"));
    limit_bytes = armload_lower(limit_bytes, armload_group_number(path, "memory.limit_in_bytes"));
    snprintf(stat_path, sizeof(stat_path), "%s/memory.stat", path);
    armload_read_file(stat_path, stat);
    limit_bytes = armload_lower(limit_bytes, armload_number_of(stat, "hierarchical_memory_limit ", -1));
    int64_t used_bytes = armload_group_number(path, "memory.current");
    if (used_bytes < 0) {
        used_bytes = armload_group_number(path, "memory.usage_in_bytes");
    }
    if (limit_bytes < 0 || used_bytes < 0) {
        return;
    }
    int64_t taken_bytes = used_bytes - armload_cached_bytes(stat);
    taken_bytes         = taken_bytes > 0 ? taken_bytes : 0;
    const int64_t left_bytes = limit_bytes > taken_bytes ? limit_bytes - taken_bytes : 0;
    if (tightest->limit_bytes < 0 || left_bytes < tightest->left_bytes) {
        *tightest = (struct armload_group){ .limit_bytes = limit_bytes, .left_bytes = left_bytes };
    }
}

// Takes out what /proc writes for spaces, line ends and backslashes: \040 and the like.
static inline void armload_unescape(char * word) {
    char * to = word;
    for (const char * from = word; *from != '\0'; to++) {
        if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] != '\0' && from[3] != '\0') {
            *to = (char) ((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

static inline bool armload_lists_memory(const char * controllers) {
    for (const char * found = strstr(controllers, "memory"); found != NULL; found = strstr(found + 1, "memory")) {
        const char after = found[strlen("memory")];
        if ((found == controllers || found[-1] == ',') && (after == '\0' || after == ',' || after == '\n')) {
            return true;
        }
    }
    return false;
}

// Where a control group is mounted. Its name begins at the root of this process's namespace, a mount
// at any group; where the two do not meet, what is mounted is all there is.
struct armload_mounted {
    char         path[ARMLOAD_PATH_BYTES]; // of the group itself
    size_t       top_length;               // of the mount point; 0 where there is none
};

// Returns false where the list of mounts could not be read to its end.
static inline bool armload_find_mount(const char * name, bool is_version_2, struct armload_mounted * found) {
    FILE * mounts = fopen("/proc/self/mountinfo", "re");
    char   line[ARMLOAD_FILE_BYTES];
    found->top_length = 0;
    while (mounts != NULL && fgets(line, sizeof(line), mounts) != NULL) {
        char * type = strstr(line, is_version_2 ? " - cgroup2 " : " - cgroup ");
        if (type == NULL || (!is_version_2 && !armload_lists_memory(strrchr(line, ' ') + 1))) {
            continue;
        }
        *type = '\0';
        char * rest;
        char * root = strtok_r(line, " ", &rest);
        for (int i = 0; i < 3 && root != NULL; i++) {
            root = strtok_r(NULL, " ", &rest);
        }
        char * point = root == NULL ? NULL : strtok_r(NULL, " ", &rest);
        if (point == NULL) {
            continue;
        }
        armload_unescape(root);
        armload_unescape(point);
        size_t length = strlen(root);
        length -= length > 0 && root[length - 1] == '/';
        const bool is_below = strncmp(name, root, length) == 0 && (name[length] == '/' || name[length] == '\0');
        if (!is_below && found->top_length > 0) {
            continue;
        }
        const char * inner = is_below ? name + length : "";
        const int    size  = snprintf(found->path, sizeof(found->path), "%s%s", point, inner);
        if (size < 0 || (size_t) size >= sizeof(found->path)) {
            continue;
        }
        found->top_length = strlen(point);
        while (size > 0 && strlen(found->path) > found->top_length && found->path[strlen(found->path) - 1] == '/') {
            found->path[strlen(found->path) - 1] = '\0';
        }
    }
    const bool is_whole = mounts == NULL || !ferror(mounts);
    if (mounts != NULL) {
        fclose(mounts);
    }
    return is_whole;
}

// A group is bound by those around it, too; with version 1 only where these say so.
static inline void armload_climb(struct armload_mounted at, bool is_version_2, struct armload_group * tightest) {
    while (at.top_length > 0) {
        armload_look_at_group(at.path, tightest);
        if (strlen(at.path) <= at.top_length) {
            return;
        }
        *strrchr(at.path, '/') = '\0';
        if (!is_version_2 && armload_group_number(at.path, "memory.use_hierarchy") == 0) {
            return;
        }
    }
}

// Finds the control group that leaves the least; its limit is -1 without one. Returns false where the kernel does
// not tell. Mounts are looked for when this process has come into other groups: there may be thousands.
static inline bool armload_tightest_group(struct armload_group * tightest) {
    static __thread char                   known[ARMLOAD_FILE_BYTES];
    static __thread struct armload_mounted mounted[2]; // of version 1 and 2
    char                                   text[ARMLOAD_FILE_BYTES];
    tightest->limit_bytes = -1;
    if (!armload_read_file("/proc/self/cgroup", text)) {
        return true;
    }
    if (strcmp(text, known) != 0) {
        strcpy(known, text);
        mounted[0].top_length = mounted[1].top_length = 0;
        char * rest;
        for (char * line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
            char * controllers = strchr(line, ':');
            char * name        = controllers == NULL ? NULL : strchr(++controllers, ':');
            if (name == NULL) {
                continue;
            }
            *name++                 = '\0';
            const bool is_version_2 = controllers[0] == '\0';
            if ((is_version_2 || armload_lists_memory(controllers))
                && !armload_find_mount(name, is_version_2, &mounted[is_version_2])) {
                known[0] = '\0';
                return false;
            }
        }
    }
    armload_climb(mounted[0], false, tightest);
    armload_climb(mounted[1], true, tightest);
    return true;
}

// Returns false where the kernel does not tell.
static inline bool armload_read_memory(struct armload_memory * memory) {
    char text[ARMLOAD_FILE_BYTES];
    if (!armload_read_file("/proc/meminfo", text)) {
        return false;
    }
    memory->total_bytes     = armload_number_of(text, "MemTotal:", 0) * 1024;
    memory->available_bytes = armload_number_of(text, "MemAvailable:", 0) * 1024;
    memory->has_swap        = armload_number_of(text, "SwapTotal:", 0) > 0;
    if (memory->total_bytes <= 0 || memory->available_bytes <= 0) {
        return false;
    }
    struct armload_group group;
    if (!armload_tightest_group(&group)) {
        return false;
    }
    if (group.limit_bytes >= 0 && group.left_bytes < memory->available_bytes) {
        memory->available_bytes = group.left_bytes;
        if (group.limit_bytes < memory->total_bytes) {
            memory->total_bytes = group.limit_bytes;
        }
    }
    return true;
}

static inline int64_t armload_own_status(const char * key) {
    char text[ARMLOAD_FILE_BYTES];
    return armload_read_file("/proc/self/status", text) ? armload_number_of(text, key, 0) * 1024 : 0;
}

// What this process has locked, as the kernel counts it, filled or not; 0 where it does not tell.
static inline int64_t armload_locked_bytes(void) {
    return armload_own_status("VmLck:");
}

// What this process has in memory of its own, which is in no file; 0 where the kernel does not tell.
static inline int64_t armload_anonymous_bytes(void) {
    return armload_own_status("RssAnon:");
}
