/* What all parts of supervise use: the clock, the folder's files, the ids of versions. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ID_BYTES = 65, SMALL_FILE_BYTES = 4096 };

static const int64_t NEVER = INT64_MAX;

/* No change of the date moves this clock, and it goes on while the board sleeps. */
static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static bool read_small_file(const char *name, char *text)
{
    int file = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return false;
    ssize_t count = read(file, text, SMALL_FILE_BYTES);
    int reason = count == SMALL_FILE_BYTES ? EFBIG : errno;
    close(file);
    errno = reason;
    if (count < 0 || count == SMALL_FILE_BYTES)
        return false;
    text[count] = '\0';
    errno = EILSEQ;
    return strlen(text) == (size_t)count;
}

/* Whoever reads the file, after a power cut too, finds the former text or this one. The folder may
 * belong to the service's user: nothing there leads root elsewhere. */
static bool replace_file(const char *name, const char *text, size_t length)
{
    char beside[64];
    snprintf(beside, sizeof beside, ".%s.new", name);
    unlink(beside);
    int file = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (file < 0)
        return false;
    bool is_whole = write(file, text, length) == (ssize_t)length && fsync(file) == 0;
    int reason = is_whole ? 0 : errno;
    close(file);
    if (is_whole && rename(beside, name) == 0)
        return true;
    reason = is_whole ? errno : reason;
    unlink(beside);
    errno = reason;
    return false;
}

static void sync_folder(void)
{
    int folder = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return;
    fsync(folder);
    close(folder);
}

/* An id is a folder's name, so it leads nowhere else. */
static bool read_id(const char *name, char *id)
{
    char text[SMALL_FILE_BYTES];
    if (!read_small_file(name, text))
        return false;
    size_t length = strspn(text, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-");
    errno = EILSEQ;
    if (length == 0 || length >= ID_BYTES || text[0] == '.' || (text[length] != '\0' && strcmp(text + length, "\n") != 0))
        return false;
    memcpy(id, text, length);
    id[length] = '\0';
    return true;
}
