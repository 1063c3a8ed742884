// SPDX-License-Identifier: Apache-2.0
//
// bfloat16: the upper half of a float32. 8 bits of precision, all of its range.
#pragma once

#include <cstdint>
#include <cstring>

namespace msrec {

// Return the nearest bfloat16; of two, the even one. NaN stays NaN.
inline uint16_t ToBfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

inline float FromBfloat16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace msrec
