/* Runs a program on some cores only, for boards without taskset:
 *
 *     pin MASK PROGRAM [ARGUMENT]...
 *
 * MASK is hexadecimal, core 0 in its last bit. Ends as a shell does when the program can't be run. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int digit(char c)
{
    static const char DIGITS[] = "0123456789abcdef";
    const char *found = c ? strchr(DIGITS, c) : NULL;
    return found ? (int)(found - DIGITS) : -1;
}

int main(int count, char **words)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    size_t length = count > 2 ? strlen(words[1]) : 0;
    for (size_t i = 0; i < length; i++) {
        int value = digit(words[1][length - 1 - i]);
        if (value < 0 || 4 * i + 3 >= CPU_SETSIZE)
            length = 0;
        for (size_t bit = 0; length && bit < 4; bit++)
            if (value >> bit & 1)
                CPU_SET(4 * i + bit, &cores);
    }
    if (!length) {
        fputs("usage: pin MASK PROGRAM [ARGUMENT]...\n", stderr);
        return 2;
    }
    if (sched_setaffinity(0, sizeof cores, &cores)) {
        fprintf(stderr, "pin: %s: %s\n", words[1], strerror(errno));
        return 1;
    }
    execvp(words[2], words + 2);
    int reason = errno;
    fprintf(stderr, "pin: %s: %s\n", words[2], strerror(reason));
    return reason == ENOENT ? 127 : 126;
}
