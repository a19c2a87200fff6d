#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// Lets what the engine has said reach its outputs, and ends its logger. Current releases leave the
// logger's thread running when the program ends, so that its last words, generated text among
// them, are lost in one run out of some tens.
void armload_finish_log(void);

#ifdef __cplusplus
}
#endif
