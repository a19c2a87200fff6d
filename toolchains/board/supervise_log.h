/* Two files, log and log.1, of so many bytes each: what the service writes, and a line of ours where
 * something happens to it. */
#pragma once

#include <stdarg.h>
#include <sys/stat.h>

#include "supervise_base.h"

static struct {
    int file;
    int64_t most_bytes, dropped_bytes;
} record = {.file = -1, .most_bytes = 1 << 20};

/* The size of the file, opened again where it has been removed; -1 where there is none. The folder
 * may take files of the service's user: a name that it has given to another file is none. */
static int64_t open_log(void)
{
    struct stat about;
    if (record.file >= 0 && fstat(record.file, &about) == 0 && about.st_nlink > 0)
        return about.st_size;
    if (record.file >= 0)
        close(record.file);
    record.file = open("log", O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
    if (record.file < 0)
        return -1;
    if (fstat(record.file, &about) == 0 && S_ISREG(about.st_mode) && about.st_nlink == 1)
        return about.st_size;
    close(record.file);
    record.file = -1;
    return -1;
}

/* How much of it goes into a file with so much room: whole lines, where one fits. */
static size_t part_for(const char *text, size_t length, int64_t size)
{
    int64_t room = record.most_bytes - size;
    if ((int64_t)length <= room)
        return length;
    const char *end = room > 0 ? memrchr(text, '\n', (size_t)room) : NULL;
    return end != NULL ? (size_t)(end - text) + 1 : size == 0 ? (size_t)room : 0;
}

static bool write_out(const char *text, size_t length)
{
    for (size_t done = 0; done < length;) {
        ssize_t count = write(record.file, text + done, length - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0) {
            record.dropped_bytes += (int64_t)(length - done);
            return false;
        }
        done += (size_t)count;
    }
    return true;
}

/* Whatever the storage does, this returns: what cannot be written is counted and dropped. */
static void put_log(const char *text, size_t length)
{
    while (length > 0) {
        int64_t size = open_log();
        size_t part = size < 0 ? 0 : part_for(text, length, size);
        if (size < 0 || (part == 0 && rename("log", "log.1") != 0)) {
            record.dropped_bytes += (int64_t)length;
            return;
        }
        if (part == 0) {
            close(record.file);
            record.file = -1;
        }
        write_out(text, part);
        text += part;
        length -= part;
    }
}

__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...)
{
    char line[1024] = "supervise: ";
    size_t length = strlen(line);
    va_list values;
    va_start(values, format);
    vsnprintf(line + length, sizeof line - length - 1, format, values);
    va_end(values);
    strcat(line, "\n");
    put_log(line, strlen(line));
    fputs(line, stderr);
}
