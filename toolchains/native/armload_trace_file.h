// The trace's file. It is opened when the program starts. With ARMLOAD_TRACE_BYTES it grows to about
// that size: then it is renamed to <name>.1, in place of the one before, and a new one is begun. So a
// service that runs for weeks keeps its newest steps, and takes twice that size at most.

#pragma once

#include <stdbool.h>
#include <stddef.h>

// Whether ARMLOAD_TRACE names a file that can be written.
bool armload_trace_wanted(void);

// Sets the line that every file begins with; without it no other one could be read.
void armload_trace_head(const char * line, size_t length);

// Begins a new file where the one there is has its size. Says whether it did.
bool armload_trace_rotate(void);

// Appends a line. One that is lost shows in the numbers of the steps; the next may find space again.
void armload_trace_put(const char * line, size_t length);
