// The date that chat templates are given, so that an answer depends neither on the day nor on the
// board's clock.

#pragma once

#include <stdbool.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

// Stops the calendar at noon, UTC, of a date such as 2026-01-31; returns false if it is none.
bool armload_clock_fix(const char * date);

void armload_clock_release(void);

#ifdef __cplusplus
}
#endif
