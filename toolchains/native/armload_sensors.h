// The clock, the frequency of each core, the temperature of the hottest zone of those that
// ARMLOAD_ZONES lists (of all where it is not set), and what the files show that ARMLOAD_CLOCKS
// names, with a space between two: frequencies of memory and other devices, in Hz.

#pragma once

#include "armload_line.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    ARMLOAD_MAX_CORES       = 256,
    ARMLOAD_MAX_ZONES       = 64,
    ARMLOAD_MAX_CLOCKS      = 16,
    ARMLOAD_SENSE_EVERY_NS  = 100 * 1000 * 1000,
    ARMLOAD_SHARE           = 400, // what is slow to read may take one part in so many of the time
    ARMLOAD_NO_TEMPERATURE  = -1000000,
    ARMLOAD_COLDEST_CELSIUS = -40, // no zone that works reaches these
    ARMLOAD_HOTTEST_CELSIUS = 150,
    ARMLOAD_LEAST_TENTHS    = 150, // of zones that were chosen by name, too hot for degrees
};

_Static_assert((ARMLOAD_MAX_CORES + ARMLOAD_MAX_CLOCKS) * sizeof(",-9223372036854775808") + 2048
                   <= ARMLOAD_LINE_BYTES,
               "a step's line must hold any frequency of all cores and devices");

static struct {
    int       core_count;
    int       cores[ARMLOAD_MAX_CORES];
    cpu_set_t core_numbers;
    int       zone_count;
    int       zones[ARMLOAD_MAX_ZONES];
    bool      chosen_zones;
    int       clock_count;
    int       clocks[ARMLOAD_MAX_CLOCKS];
    int64_t   sensed_ns;
    int64_t   interval_ns;
    long      khz[ARMLOAD_MAX_CORES];
    long      clock_khz[ARMLOAD_MAX_CLOCKS];
    long      millicelsius; // of the hottest zone
} armload_sensors = { .millicelsius = ARMLOAD_NO_TEMPERATURE };

static inline int64_t armload_clock_ns(clockid_t clock) {
    struct timespec now;
    if (clock_gettime(clock, &now) != 0) {
        return INT64_MIN;
    }
    return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline ssize_t armload_read_text(int file, char * text, size_t size) {
    const ssize_t count = file < 0 ? -1 : pread(file, text, size - 1, 0);
    text[count > 0 ? count : 0] = '\0';
    return count;
}

static inline bool armload_read_number(int file, long * number) {
    char   text[64];
    char * end;
    if (armload_read_text(file, text, sizeof(text)) <= 0) {
        return false;
    }
    *number = strtol(text, &end, 10);
    return end != text;
}

// Tells whether a list such as "0,2" names a zone; NULL names all.
static inline bool armload_is_in(const char * zones, long zone) {
    if (zones == NULL) {
        return true;
    }
    for (char * end; *zones != '\0'; zones = *end == ',' ? end + 1 : end) {
        if (strtol(zones, &end, 10) == zone && end != zones) {
            return true;
        }
        if (end == zones) {
            return false;
        }
    }
    return false;
}

// A file that cannot be opened keeps its place, and shows 0.
static inline void armload_open_clocks(const char * paths) {
    char path[512];
    while (paths != NULL && *paths != '\0' && armload_sensors.clock_count < ARMLOAD_MAX_CLOCKS) {
        const size_t length = strcspn(paths, " ");
        const bool   fits   = length > 0 && length < sizeof(path);
        snprintf(path, sizeof(path), "%.*s", fits ? (int) length : 0, paths);
        armload_sensors.clocks[armload_sensors.clock_count++] = open(path, O_RDONLY | O_CLOEXEC);
        paths += length + (paths[length] == ' ');
    }
}

static inline void armload_open_sensors(void) {
    char path[128];
    CPU_ZERO(&armload_sensors.core_numbers);
    // musl's count of the cores is that of those which this process may use, wherever they begin.
    for (int core = 0; core < ARMLOAD_MAX_CORES; core++) {
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", core);
        const int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            armload_sensors.cores[armload_sensors.core_count++] = file;
            CPU_SET(core, &armload_sensors.core_numbers);
        }
    }
    armload_open_clocks(getenv("ARMLOAD_CLOCKS"));
    const char * zones  = getenv("ARMLOAD_ZONES");
    DIR *        folder = opendir("/sys/class/thermal");
    armload_sensors.chosen_zones = zones != NULL;
    if (folder == NULL) {
        return;
    }
    const struct dirent * entry;
    while ((entry = readdir(folder)) != NULL && armload_sensors.zone_count < ARMLOAD_MAX_ZONES) {
        if (strncmp(entry->d_name, "thermal_zone", 12) != 0
            || !armload_is_in(zones, strtol(entry->d_name + 12, NULL, 10))) {
            continue;
        }
        snprintf(path, sizeof(path), "/sys/class/thermal/%.32s/temp", entry->d_name);
        const int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            armload_sensors.zones[armload_sensors.zone_count++] = file;
        }
    }
    closedir(folder);
}

// Sensors can be slow (some ask a microcontroller); between two readings the last one is repeated.
static inline void armload_sense(int64_t now_ns) {
    if (armload_sensors.sensed_ns != 0
        && now_ns - armload_sensors.sensed_ns < armload_sensors.interval_ns) {
        return;
    }
    for (int core = 0; core < armload_sensors.core_count; core++) {
        if (!armload_read_number(armload_sensors.cores[core], &armload_sensors.khz[core])) {
            armload_sensors.khz[core] = 0; // switched off
        }
    }
    for (int clock = 0; clock < armload_sensors.clock_count; clock++) {
        long hz;
        const bool is_known = armload_read_number(armload_sensors.clocks[clock], &hz) && hz > 0;
        armload_sensors.clock_khz[clock] = is_known ? hz / 1000 : 0;
    }
    armload_sensors.millicelsius = ARMLOAD_NO_TEMPERATURE;
    for (int zone = 0; zone < armload_sensors.zone_count; zone++) {
        long value;
        if (!armload_read_number(armload_sensors.zones[zone], &value)) {
            continue;
        }
        if (labs(value) < 1000) { // some vendors' drivers give degrees, or tenths of one
            const bool in_tenths = armload_sensors.chosen_zones && value >= ARMLOAD_LEAST_TENTHS;
            value *= in_tenths ? 100 : 1000;
        }
        const bool makes_sense
            = value != 0 && value > ARMLOAD_COLDEST_CELSIUS * 1000 && value < ARMLOAD_HOTTEST_CELSIUS * 1000;
        if (makes_sense && value > armload_sensors.millicelsius) {
            armload_sensors.millicelsius = value;
        }
    }
    armload_sensors.sensed_ns = armload_clock_ns(CLOCK_MONOTONIC);
    const int64_t rest_ns     = (armload_sensors.sensed_ns - now_ns) * ARMLOAD_SHARE;
    armload_sensors.interval_ns = rest_ns > ARMLOAD_SENSE_EVERY_NS ? rest_ns : ARMLOAD_SENSE_EVERY_NS;
}

// Ends a step's line.
static inline size_t armload_append_sensors(char * line, size_t length) {
    length = armload_append(line, length, ",\"cpu_khz\":[");
    for (int core = 0; core < armload_sensors.core_count; core++) {
        length = armload_append(line, length, core == 0 ? "%ld" : ",%ld", armload_sensors.khz[core]);
    }
    for (int clock = 0; clock < armload_sensors.clock_count; clock++) {
        length = armload_append(line, length, clock == 0 ? "],\"device_khz\":[%ld" : ",%ld",
                                armload_sensors.clock_khz[clock]);
    }
    if (armload_sensors.millicelsius == ARMLOAD_NO_TEMPERATURE) {
        return armload_append(line, length, "],\"celsius\":null}\n");
    }
    return armload_append(line, length, "],\"celsius\":%.1f}\n",
                          (double) armload_sensors.millicelsius / 1000);
}
