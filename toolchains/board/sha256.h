/* SHA-256 (FIPS 180-4), by the CPU's instructions where they are quicker. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#if defined(__aarch64__)
#include <arm_neon.h>
#include <sys/auxv.h>
#define HWCAP_SHA2_BIT (1UL << 6)
#elif defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

enum { CHUNK_BYTES = 64, SUM_DIGITS = 64 };

static const uint32_t ROUND[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

typedef struct {
    uint32_t state[8];
    uint64_t length;
    uint8_t rest[CHUNK_BYTES];
} Sum;

typedef void (*Compress)(uint32_t state[8], const uint8_t *data, size_t chunks);

static uint32_t rotated(uint32_t word, int by) { return word >> by | word << (32 - by); }

static void compress_plainly(uint32_t state[8], const uint8_t *data, size_t chunks)
{
    for (; chunks; chunks--, data += CHUNK_BYTES) {
        uint32_t w[64], v[8];
        for (int i = 0; i < 16; i++)
            w[i] = (uint32_t)data[4 * i] << 24 | (uint32_t)data[4 * i + 1] << 16 |
                   (uint32_t)data[4 * i + 2] << 8 | data[4 * i + 3];
        for (int i = 16; i < 64; i++)
            w[i] = w[i - 16] + w[i - 7] +
                   (rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ w[i - 15] >> 3) +
                   (rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ w[i - 2] >> 10);
        memcpy(v, state, sizeof v);
#define V(letter) v[(letter - 'a' - i) & 7]
#pragma clang loop unroll_count(8)
        for (int i = 0; i < 64; i++) {
            uint32_t e = V('e'), a = V('a');
            uint32_t one = V('h') + ROUND[i] + w[i] +
                           (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) +
                           ((e & V('f')) ^ (~e & V('g')));
            V('d') += one;
            V('h') = one + (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) +
                     ((a & V('b')) ^ (a & V('c')) ^ (V('b') & V('c')));
        }
#undef V
        for (int i = 0; i < 8; i++)
            state[i] += v[i];
    }
}

#if defined(__aarch64__)
__attribute__((target("sha2"))) static void
compress_by_instructions(uint32_t state[8], const uint8_t *data, size_t chunks)
{
    uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4);
    for (; chunks; chunks--, data += CHUNK_BYTES) {
        uint32x4_t former_abcd = abcd, former_efgh = efgh, w[4];
        for (int i = 0; i < 4; i++)
            w[i] = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(data + 16 * i)));
#pragma clang loop unroll(full)
        for (int i = 0; i < 16; i++) {
            uint32x4_t with_round = vaddq_u32(w[i % 4], vld1q_u32(ROUND + 4 * i));
            uint32x4_t before = abcd;
            if (i < 12)
                w[i % 4] = vsha256su1q_u32(vsha256su0q_u32(w[i % 4], w[(i + 1) % 4]),
                                           w[(i + 2) % 4], w[(i + 3) % 4]);
            abcd = vsha256hq_u32(abcd, efgh, with_round);
            efgh = vsha256h2q_u32(efgh, before, with_round);
        }
        abcd = vaddq_u32(abcd, former_abcd);
        efgh = vaddq_u32(efgh, former_efgh);
    }
    vst1q_u32(state, abcd);
    vst1q_u32(state + 4, efgh);
}

static int has_instructions(void) { return (getauxval(AT_HWCAP) & HWCAP_SHA2_BIT) != 0; }
#elif defined(__x86_64__)
/* The instructions keep the state as ABEF and CDGH. */
__attribute__((target("sha,sse4.1"))) static void
compress_by_instructions(uint32_t state[8], const uint8_t *data, size_t chunks)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xb1);
    __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1b);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
    for (; chunks; chunks--, data += CHUNK_BYTES) {
        __m128i former_abef = abef, former_cdgh = cdgh, w[4];
        for (int i = 0; i < 4; i++)
            w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(data + 16 * i)), swap);
#pragma clang loop unroll(full)
        for (int i = 0; i < 16; i++) {
            __m128i with_round =
                _mm_add_epi32(w[i % 4], _mm_loadu_si128((const __m128i *)(ROUND + 4 * i)));
            if (i < 12) {
                __m128i last = w[(i + 3) % 4];
                __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w[i % 4], w[(i + 1) % 4]),
                                            _mm_alignr_epi8(last, w[(i + 2) % 4], 4));
                w[i % 4] = _mm_sha256msg2_epu32(sum, last);
            }
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, with_round);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(with_round, 0x0e));
        }
        abef = _mm_add_epi32(abef, former_abef);
        cdgh = _mm_add_epi32(cdgh, former_cdgh);
    }
    __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

static int has_instructions(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1);
}
#else
#error "for aarch64 and x86_64"
#endif

static uint64_t taken_ns(Compress compress, const uint8_t *data, size_t length)
{
    uint32_t state[8] = {0};
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    compress(state, data, length / CHUNK_BYTES);
    clock_gettime(CLOCK_MONOTONIC, &after);
    return (uint64_t)(after.tv_sec - before.tv_sec) * 1000000000 + (uint64_t)after.tv_nsec -
           (uint64_t)before.tv_nsec;
}

/* An emulator has the instructions and is slower with them, so the quicker way is found by trial. */
static Compress chosen(const uint8_t *data, size_t length)
{
    if (!has_instructions())
        return compress_plainly;
    taken_ns(compress_by_instructions, data, CHUNK_BYTES);
    taken_ns(compress_plainly, data, CHUNK_BYTES);
    int quicker =
        taken_ns(compress_by_instructions, data, length) < taken_ns(compress_plainly, data, length);
    return quicker ? compress_by_instructions : compress_plainly;
}

static void begin(Sum *sum)
{
    static const uint32_t FIRST[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(sum->state, FIRST, sizeof FIRST);
    sum->length = 0;
}

static void add(Sum *sum, Compress compress, const uint8_t *data, size_t length)
{
    size_t there = sum->length % CHUNK_BYTES;
    sum->length += length;
    if (there) {
        size_t fits = CHUNK_BYTES - there < length ? CHUNK_BYTES - there : length;
        memcpy(sum->rest + there, data, fits);
        data += fits;
        length -= fits;
        if (there + fits < CHUNK_BYTES)
            return;
        compress(sum->state, sum->rest, 1);
    }
    compress(sum->state, data, length / CHUNK_BYTES);
    memcpy(sum->rest, data + length / CHUNK_BYTES * CHUNK_BYTES, length % CHUNK_BYTES);
}

/* Writes the sum as SUM_DIGITS hexadecimal digits and a null. */
static void finish(Sum *sum, Compress compress, char *digits)
{
    uint64_t bits = sum->length * 8;
    uint8_t end[CHUNK_BYTES + 8] = {0x80};
    size_t padding = 1 + (2 * CHUNK_BYTES - 9 - sum->length % CHUNK_BYTES) % CHUNK_BYTES;
    for (int i = 0; i < 8; i++)
        end[padding + i] = (uint8_t)(bits >> (56 - 8 * i));
    add(sum, compress, end, padding + 8);
    for (int i = 0; i < 8; i++)
        snprintf(digits + 8 * i, 9, "%08x", sum->state[i]);
}
