#include "armload_log.h"

#ifdef ARMLOAD_LOG_NEEDS_FLUSH
#include "log.h"

void armload_finish_log(void) {
    common_log_pause(common_log_main());
}
#else
void armload_finish_log(void) {}
#endif
