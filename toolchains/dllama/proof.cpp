#include "proof.h"

namespace {

const size_t   BLOCK_BYTES = 64;
const uint32_t ROUNDS[64]  = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2
};

uint32_t rotated(uint32_t word, int by) {
    return word >> by | word << (32 - by);
}

void compress(std::array<uint32_t, 8> & state, const uint8_t * block) {
    uint32_t w[64];
    for (int i = 0; i < 16; i++) {
        w[i] = (uint32_t) block[4 * i] << 24 | (uint32_t) block[4 * i + 1] << 16 | (uint32_t) block[4 * i + 2] << 8 |
               block[4 * i + 3];
    }
    for (int i = 16; i < 64; i++) {
        w[i] = w[i - 16] + w[i - 7] + (rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ w[i - 2] >> 10);
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; i++) {
        const uint32_t one =
            h + ROUNDS[i] + w[i] + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + ((e & f) ^ (~e & g));
        const uint32_t two = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
    }
    const uint32_t added[8] = { a, b, c, d, e, f, g, h };
    for (int i = 0; i < 8; i++) {
        state[i] += added[i];
    }
}

proof sum_of(std::string message) {
    const uint64_t bits = (uint64_t) message.size() * 8;
    message += (char) 0x80;
    message.resize((message.size() + 8 + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES - 8);
    for (int shift = 56; shift >= 0; shift -= 8) {
        message += (char) (bits >> shift);
    }
    std::array<uint32_t, 8> state = { { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                                        0x1f83d9ab, 0x5be0cd19 } };
    for (size_t at = 0; at < message.size(); at += BLOCK_BYTES) {
        compress(state, (const uint8_t *) &message[at]);
    }
    proof sum;
    for (size_t i = 0; i < sum.size(); i++) {
        sum[i] = (uint8_t) (state[i / 4] >> (24 - 8 * (i % 4)));
    }
    return sum;
}

std::string padded(std::string key, char with) {
    key.resize(BLOCK_BYTES);
    for (char & each : key) {
        each = (char) (each ^ with);
    }
    return key;
}

} // namespace

proof proof_of(const std::string & key, const std::string & message) {
    const proof inner = sum_of(padded(key, 0x36) + message);
    return sum_of(padded(key, 0x5c) + std::string(inner.begin(), inner.end()));
}

bool is_same(const proof & one, const proof & other) {
    uint8_t difference = 0;
    for (size_t i = 0; i < one.size(); i++) {
        difference |= (uint8_t) (one[i] ^ other[i]);
    }
    return difference == 0;
}
