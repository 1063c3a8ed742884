// SPDX-License-Identifier: Apache-2.0
//
// bfloat16: the upper half of a float32, with 8 bits of precision and the full range of float32.
// The functions are always inlined, because the kernels of every instruction set use them.
#pragma once

#include <cstdint>
#include <cstring>

namespace msrec {

// Return the nearest bfloat16, ties to even. NaN stays NaN.
__attribute__((always_inline)) inline uint16_t ToBfloat16(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>(nan ? bits >> 16 | 0x40u : rounded);
}

// Return one of the two bfloat16 numbers nearest to a number: the next lower or the next higher.
// The probability of the higher number is chosen so that the expected value of the result is
// `value`. The upper half of `random`, a uniform 32-bit number, is added to the discarded bits. If
// the addition to the discarded bits has a carry, the number is rounded away from zero. A number
// that is already a bfloat16 stays unchanged; NaN stays NaN.
__attribute__((always_inline)) inline uint16_t ToBfloat16(float value, uint32_t random) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t rounded = (bits + (random >> 16)) >> 16;
  return static_cast<uint16_t>(nan ? bits >> 16 | 0x40u : rounded);
}

__attribute__((always_inline)) inline float FromBfloat16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace msrec
