// Proof of knowing a key, without telling it: HMAC-SHA-256 (FIPS 198-1, FIPS 180-4).

#pragma once

#include <array>
#include <cstdint>
#include <string>

typedef std::array<uint8_t, 32> proof;

// The HMAC of a message; a key of at most 64 bytes.
proof proof_of(const std::string & key, const std::string & message);

// In a time that does not tell how much of one is right.
bool is_same(const proof & one, const proof & other);
