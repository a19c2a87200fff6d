#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "armload_storage_error.h"

#include "armload_mapping.h"

#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { INPUT_OUTPUT_ERROR = 74 }; // EX_IOERR of sysexits.h

static void give_up(const char * why) {
    const ssize_t ignored = write(STDERR_FILENO, why, strlen(why));
    (void) ignored;
    _exit(INPUT_OUTPUT_ERROR);
}

void armload_end_for_storage_error(void) {
    give_up("\narmload: the model cannot be read: the storage reported an error, or the file was truncated\n");
}

static void on_bus_error(int signal, siginfo_t * info, void * context) {
    (void) signal;
    (void) context;
    if (info->si_code == BUS_ADRALN) {
        give_up("\narmload: bus error: misaligned address\n");
    }
    armload_end_for_storage_error();
}

void armload_explain_storage_errors(void) {
    struct sigaction action = { .sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO };
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

void armload_check_sizes(const struct armload_pieces * pieces) {
    struct armload_mapping mapping;
    struct stat            status;
    const char *           base = NULL;
    for (int index = 0; index < pieces->tensor_count; index++) {
        const char * const begin = pieces->tensors[index].begin;
        if (!armload_find_mapping(begin, &mapping) || mapping.base == base) {
            continue;
        }
        base = mapping.base;
        if (fstat(mapping.file, &status) == 0 && status.st_size < mapping.file_bytes) {
            give_up("\narmload: the model cannot be read: the file was truncated while it was in use\n");
        }
    }
}
