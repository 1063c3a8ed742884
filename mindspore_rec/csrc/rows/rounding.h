// SPDX-License-Identifier: Apache-2.0
//
// Rounding: how an optimizer step rounds rows of 2-byte numbers. Stochastic rounding uses a random
// number generator without state. The random numbers are a function of the table's seed and name,
// the row's key, the table's step and the position in the row. Threads, instruction sets, tiers and
// workers do not affect the rounded numbers. A run that resumes from a checkpoint uses the same
// random numbers as an uninterrupted run. The code of the generator is in rows/narrow.inl:
//
//   stream of a step   = Mix64(Mix64(seed of the table ^ kRoundingStream) + step)
//   stream of a row    = Mix64(stream of the step ^ Mix64(key ^ kRoundingKey)), as lo + 2^32 * hi
//   number i, plane 0  = x = lo + i * 0x9e3779b9; x ^= x >> 16; x *= 0x7feb352d; x ^= x >> 15
//                        x += hi; x *= 0x846ca68b; x ^= x >> 16
//   number i, plane 1  = x = number i of plane 0; x *= 0x9e3779b1; x ^= x >> 15
//
// in uint32. Element i of the value uses the leading bits of number i of plane 0. Element i of
// state k is bfloat16, and needs 16 random bits. These random bits are one half of number i of
// plane (k + 1) / 2. If k is odd, state k uses the upper half of the random number; if k is even,
// the lower half. To save time, random numbers of plane 1 are computed from random numbers of plane
// 0. For one element, the random bits of the value and of the states must be almost independent.
// The halves of the random numbers are almost independent, although a number of plane 1 is computed
// from a number of plane 0.
#pragma once

#include <cstdint>

#include "util/hash.h"

namespace msrec {

struct Rounding {
  bool stochastic = false;
  uint64_t stream = 0;  // stream of the step
};

constexpr uint64_t kRoundingStream = 0x5374656350726563ULL;
constexpr uint64_t kRoundingKey = 0x52b2c5f0a9d81e37ULL;

inline uint64_t RoundingStream(uint64_t table_seed, int64_t step) {
  return Mix64(Mix64(table_seed ^ kRoundingStream) + static_cast<uint64_t>(step));
}

}  // namespace msrec
