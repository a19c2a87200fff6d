/* The frequency of each core, and the temperature of the hottest zone. */
#pragma once

#include <dirent.h>
#include <sched.h>

#include "watch_base.h"

enum {
    MAX_CORES = 128,
    MAX_ZONES = 64,
    SENSE_EVERY_NS = 100 * 1000 * 1000,
};

#define NO_TEMPERATURE (-1000000L)

static struct {
    int core_count, cores[MAX_CORES];
    cpu_set_t core_numbers;
    int zone_count, zones[MAX_ZONES];
    int64_t sensed_ns, interval_ns;
    long khz[MAX_CORES];
    long millicelsius; /* of the hottest zone */
} sensors = {.millicelsius = NO_TEMPERATURE};

static void open_sensors(void)
{
    char path[128];
    CPU_ZERO(&sensors.core_numbers);
    /* musl's count of the cores is that of those which this process may use, wherever they begin. */
    for (int core = 0; core < MAX_CORES; core++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", core);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            sensors.cores[sensors.core_count++] = file;
            CPU_SET(core, &sensors.core_numbers);
        }
    }
    DIR *folder = opendir("/sys/class/thermal");
    if (folder == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (strncmp(entry->d_name, "thermal_zone", 12) != 0 || sensors.zone_count == MAX_ZONES)
            continue;
        snprintf(path, sizeof path, "/sys/class/thermal/%.32s/temp", entry->d_name);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0)
            sensors.zones[sensors.zone_count++] = file;
    }
    closedir(folder);
}

/* Some sensors ask a microcontroller; between two readings the last one is repeated. */
static void sense(int64_t now_ns)
{
    if (sensors.sensed_ns != 0 && now_ns - sensors.sensed_ns < sensors.interval_ns)
        return;
    for (int core = 0; core < sensors.core_count; core++)
        if (!read_number(sensors.cores[core], &sensors.khz[core]))
            sensors.khz[core] = 0; /* switched off */
    sensors.millicelsius = NO_TEMPERATURE;
    for (int zone = 0; zone < sensors.zone_count; zone++) {
        long value;
        if (read_number(sensors.zones[zone], &value) && value > sensors.millicelsius)
            sensors.millicelsius = value;
    }
    sensors.sensed_ns = now_ns;
    int64_t rest_ns = rest_after(now_ns);
    sensors.interval_ns = rest_ns > SENSE_EVERY_NS ? rest_ns : SENSE_EVERY_NS;
}
