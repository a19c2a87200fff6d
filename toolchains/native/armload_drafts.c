// Part of programs that verify their first drafts in one batch with the prompt's last token, and remove
// what follows the accepted ones after every batch. Elsewhere, outputs for all tokens of a batch after the
// beginning of a prompt belong to a text that is scored, and a removal at the end begins another prompt.

#include <stdbool.h>

extern const bool armload_speculates;
const bool        armload_speculates = true;
