// SPDX-License-Identifier: Apache-2.0
//
// The digest of a row is a 64-bit number, which is computed from the key and the bytes of the
// value. The digest of a table is the sum of the digests of its rows modulo 2^64. The sum does not
// depend on the order of the rows. The digest of one row can be added to the sum or subtracted from
// the sum. A digest excludes optimizer state, counts and ages, because predictors do not have these
// fields.
//
// Each word of the value is mixed with the word's place, independently of all other words, so a
// processor can mix several words at a time. Computing the digest of 16 floats takes about as long
// as loading the floats from memory. Each step of the computation maps words one to one. If two
// rows of one key differ in exactly one word, the digests of the rows differ. If exactly one word
// of a table is wrong, the digest of the table is wrong, too. A digest does not protect against
// forgery.
//
// The digest of a value is computed from its float32 bytes, for tables of any precision. For an
// int8 or int4 row, the digest is computed from the bytes of scale, offset and codes. Files and
// other processes rely on these functions, so a change of a function is a change of the format. (In
// Python: tests/parameter/digest_model.py.)
#pragma once

#include <cstddef>
#include <cstdint>

#include "util/hash.h"

namespace msrec {

constexpr uint64_t kDigestStep = 0x9e3779b97f4a7c15ULL;  // odd, so that different places give
                                                         // different multiples

// This function is always inlined, like Mix64, because loops for several instruction sets call the
// function.
__attribute__((always_inline)) inline uint64_t RowDigest(int64_t key, const void* value,
                                                         size_t bytes) {
  const auto* from = static_cast<const char*>(value);
  uint64_t sum = Mix64(static_cast<uint64_t>(key) + kDigestStep);
  uint64_t place = kDigestStep;
  for (; bytes >= 8; from += 8, bytes -= 8) {
    uint64_t word;
    __builtin_memcpy(&word, from, 8);
    place += kDigestStep;
    sum += Mix64(word ^ place);
  }
  if (bytes > 0) {
    uint64_t word = 0;
    __builtin_memcpy(&word, from, bytes);
    sum += Mix64(word ^ (place + kDigestStep));
  }
  return Mix64(sum);
}

// A table is divided into `parts` parts, and each part has a digest. Returns the index of the part
// that contains the key's row: 0 .. parts - 1.
inline uint32_t DigestPart(int64_t key, uint32_t parts) {
  const uint64_t hash = Mix64(HashKey(key) ^ 0xd1b54a32d192ed03ULL);
  return static_cast<uint32_t>((hash >> 32) * parts >> 32);
}

}  // namespace msrec
