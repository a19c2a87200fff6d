/* What all parts of watch use. */
#pragma once

#include <errno.h>

#include "armload_sensors.h"

#define UNKNOWN INT64_MIN

static void complain(const char *what, const char *name)
{
    fprintf(stderr, "watch: %s: %s: %s\n", name, what, strerror(errno));
}

/* The number behind a name such as "VmPeak:". */
static int64_t number_after(const char *text, const char *name)
{
    const char *found = strstr(text, name);
    return found == NULL ? UNKNOWN : strtoll(found + strlen(name), NULL, 10);
}

static int64_t rest_after(int64_t began_ns)
{
    return (armload_clock_ns(CLOCK_MONOTONIC) - began_ns) * ARMLOAD_SHARE;
}
