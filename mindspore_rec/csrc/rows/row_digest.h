// SPDX-License-Identifier: Apache-2.0
//
// The digest of a row: 64 bits of its key and of its value's bytes. The digest of a table is the
// sum of its rows' modulo 2^64, so it depends on no order, and rows can be added to it and taken
// away. Optimizer state, counts and ages are not part of it: predictors do not have them.
//
// Words of the value are mixed each by itself with its place, so that a processor mixes several at
// a time: a digest of 16 floats takes about as long as their load from memory. All steps are
// bijections of a word: two rows of one key that differ in one word never have the same digest, and
// a table in which one word is wrong never has the right one. Against a forger it is no protection.
//
// The value counts as its float32 bytes, whatever the table keeps it as; rows of int8 and int4
// count as the bytes of scale, offset and codes. Files and other processes rely on these functions:
// changing one is a change of format. (In Python: tests/parameter/digest_model.py.)
#pragma once

#include <cstddef>
#include <cstdint>

#include "util/hash.h"

namespace msrec {

constexpr uint64_t kDigestStep = 0x9e3779b97f4a7c15ULL;  // odd: places differ

// Always inlined, as Mix64 is: loops for several instruction sets call it.
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

// Returns the part of a table, 0 .. parts - 1, whose digest a key counts in where there are
// several.
inline uint32_t DigestPart(int64_t key, uint32_t parts) {
  const uint64_t hash = Mix64(HashKey(key) ^ 0xd1b54a32d192ed03ULL);
  return static_cast<uint32_t>((hash >> 32) * parts >> 32);
}

}  // namespace msrec
