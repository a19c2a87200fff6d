// How long a sound is; see armload_sound.c.

#pragma once

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// Whether it is a sound that llama.cpp decodes, and longer than ten minutes or of unknown length.
bool armload_is_long_sound(const unsigned char * content, size_t bytes);

#ifdef __cplusplus
}
#endif
