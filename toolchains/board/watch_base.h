/* What all parts of watch use: a clock, the kernel's small files, a word to the person. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define UNKNOWN INT64_MIN

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    if (clock_gettime(clock, &now) != 0)
        return UNKNOWN;
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void complain(const char *what, const char *name)
{
    fprintf(stderr, "watch: %s: %s: %s\n", name, what, strerror(errno));
}

static ssize_t read_text(int file, char *text, size_t size)
{
    ssize_t count = file < 0 ? -1 : pread(file, text, size - 1, 0);
    text[count > 0 ? count : 0] = '\0';
    return count;
}

static bool read_number(int file, long *number)
{
    char text[64], *end;
    if (read_text(file, text, sizeof text) <= 0)
        return false;
    *number = strtol(text, &end, 10);
    return end != text;
}

/* The number behind a name such as "VmPeak:". */
static int64_t number_after(const char *text, const char *name)
{
    const char *found = strstr(text, name);
    return found == NULL ? UNKNOWN : strtoll(found + strlen(name), NULL, 10);
}

/* What is slow to read may take one part in so many of the time. */
enum { SHARE = 400 };

static int64_t rest_after(int64_t began_ns) { return (clock_ns(CLOCK_MONOTONIC) - began_ns) * SHARE; }
