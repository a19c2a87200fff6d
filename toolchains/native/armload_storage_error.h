// What a person reads when the weights can no longer be read: a bus error says nothing.

#pragma once

#include "armload_pieces.h"

void armload_explain_storage_errors(void);

void armload_end_for_storage_error(void);

// Ends the program if a file has become shorter than it was.
void armload_check_sizes(const struct armload_pieces * pieces);
