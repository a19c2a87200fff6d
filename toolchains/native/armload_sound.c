// How long a sound is that a client sends, by its headers: a decoder allocates all of it at once, and
// a few bytes can stand for hours of silence.

#include "armload_sound.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static const double MOST_S = 600.0;

struct content {
    const unsigned char * at;
    uint64_t              bytes;
};

static bool begins(struct content content, uint64_t from, const char * text) {
    return from + strlen(text) <= content.bytes && memcmp(content.at + from, text, strlen(text)) == 0;
}

static uint64_t little(const unsigned char * at, int bytes) {
    uint64_t found = 0;
    while (bytes-- > 0) {
        found = found << 8 | at[bytes];
    }
    return found;
}

static double wav_s(struct content content) {
    double bytes_per_s = 0;
    for (uint64_t at = 12; at + 8 <= content.bytes;) {
        const unsigned char * chunk = content.at + at;
        const uint64_t        size  = little(chunk + 4, 4);
        if (begins(content, at, "fmt ") && at + 24 <= content.bytes) {
            const uint64_t kind = little(chunk + 8, 2);  // integers, floats, A-law, mu-law, and more of these
            const uint64_t rate = little(chunk + 12, 4), block = little(chunk + 20, 2);
            const uint64_t frame = little(chunk + 10, 2) * little(chunk + 22, 2) / 8;
            const bool     has_samples = kind == 1 || kind == 3 || kind == 6 || kind == 7 || kind == 0xFFFE;
            bytes_per_s                = has_samples ? (double) (frame < block ? frame : block) * (double) rate : 0;
        } else if (begins(content, at, "data")) {
            return bytes_per_s > 0 ? (double) size / bytes_per_s : INFINITY;
        }
        at += 8 + size + size % 2;
    }
    return INFINITY;
}

// 20 bits of the rate, 3 and 5 bits of channels and depth, 36 bits of the number of samples.
static double flac_s(struct content content, uint64_t at) {
    uint64_t packed = 0;
    if (at + 26 > content.bytes) {
        return INFINITY;
    }
    for (int i = 0; i < 8; i++) {
        packed = packed << 8 | content.at[at + 18 + i];
    }
    const double rate = (double) (packed >> 44), samples = (double) (packed & ((UINT64_C(1) << 36) - 1));
    return rate > 0 && samples > 0 ? samples / rate : INFINITY;
}

// Of layer III in frames of known length: every frame counts, since any may have another bit rate.
static double mp3_s(struct content content, uint64_t at) {
    static const int kbits[2][15] = { { 0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160 },
                                      { 0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320 } };
    static const int hertz[3]     = { 44100, 48000, 32000 };
    double           sum_s        = 0;
    while (at + 4 <= content.bytes && sum_s <= MOST_S) {
        const unsigned char * header  = content.at + at;
        const int             version = header[1] >> 3 & 3, layer = header[1] >> 1 & 3;  // 3: MPEG 1; 1: layer III
        const int             bits = header[2] >> 4, rate = header[2] >> 2 & 3;
        if (header[0] != 0xFF || header[1] < 0xE0 || version == 1 || layer == 0 || bits == 15 || rate == 3) {
            at++;
            continue;
        }
        if (layer != 1 || bits == 0) {
            return INFINITY;
        }
        const bool is_first  = version == 3;
        const int  samples   = is_first ? 1152 : 576;
        const int  frequency = hertz[rate] / (is_first ? 1 : version == 2 ? 2 : 4);
        sum_s += (double) samples / frequency;
        at += (uint64_t) (samples / 8 * 1000 * kbits[is_first][bits] / frequency + (header[2] >> 1 & 1));
    }
    return sum_s;
}

static double seconds(struct content content) {
    uint64_t at = 0;
    if (begins(content, 0, "RIFF") && begins(content, 8, "WAVE")) {
        return wav_s(content);
    }
    while (begins(content, at, "ID3") && at + 10 <= content.bytes) {
        uint64_t size = 0;
        for (int i = 6; i < 10; i++) {
            size = size << 7 | (content.at[at + i] & 0x7F);
        }
        at += 10 + size;
    }
    if (begins(content, at, "fLaC")) {
        return flac_s(content, at);
    }
    const bool is_mp3 = at > 0 || (content.bytes > 1 && content.at[0] == 0xFF && content.at[1] >= 0xE0);
    return is_mp3 ? mp3_s(content, at) : 0;
}

bool armload_is_long_sound(const unsigned char * content, size_t bytes) {
    return seconds((struct content) { content, bytes }) > MOST_S;
}
