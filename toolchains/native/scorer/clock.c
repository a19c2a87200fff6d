#include "clock.h"

#include <stdbool.h>
#include <stdio.h>

static time_t fixed_s;
static bool   is_fixed;

bool armload_clock_fix(const char * date) {
    struct tm noon = { .tm_hour = 12 };
    char      rest;
    is_fixed = sscanf(date, "%4d-%2d-%2d%c", &noon.tm_year, &noon.tm_mon, &noon.tm_mday, &rest) == 3;
    if (is_fixed) {
        noon.tm_year -= 1900;
        noon.tm_mon -= 1;
        struct tm normal = noon;
        fixed_s          = timegm(&normal);
        is_fixed         = normal.tm_mon == noon.tm_mon && normal.tm_mday == noon.tm_mday;
    }
    return is_fixed;
}

void armload_clock_release(void) {
    is_fixed = false;
}

// Takes the place of the C library's, which llama.cpp asks when a template calls strftime_now.
time_t time(time_t * result) {
    struct timespec now = { .tv_sec = fixed_s };
    if (!is_fixed) {
        clock_gettime(CLOCK_REALTIME, &now);
    }
    if (result != NULL) {
        *result = now.tv_sec;
    }
    return now.tv_sec;
}
