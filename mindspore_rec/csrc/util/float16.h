// SPDX-License-Identifier: Apache-2.0
//
// float16: the half precision format of IEEE 754. Conversions do not need the F16C instructions,
// but their results equal the results of these instructions. A float16 has up to 11 bits of
// precision; its magnitude is 0 or ranges from 2^-24 to 65504. The functions are always inlined,
// because the kernels of every instruction set use them.
#pragma once

#include <cstdint>

namespace msrec {

constexpr uint32_t kFloat16Infinity = 0x7c00;
constexpr uint32_t kLeastNormalFloat16 = 0x38800000;  // 2^-14 as a float32

// Return the float16 with the bits `magnitude` and the sign of the float32 `bits`. If `bits` is
// NaN, return NaN.
__attribute__((always_inline)) inline uint16_t WithSignOrNan(uint32_t bits, uint32_t magnitude) {
  const uint32_t absolute = bits & 0x7fffffffu;
  const uint32_t nan = 0x7e00u | (absolute >> 13 & 0x3ffu);
  const uint32_t finite = absolute > 0x7f800000u ? nan : magnitude;
  return static_cast<uint16_t>((bits >> 16 & 0x8000u) | finite);
}

// Return the nearest float16, ties to even. NaN stays NaN.
__attribute__((always_inline)) inline uint16_t ToFloat16(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  const uint32_t absolute = bits & 0x7fffffffu;
  const uint32_t normal = ((absolute + 0xfffu + (absolute >> 13 & 1)) >> 13) - (112u << 10);
  // The last bit of a float32 in [0.5, 1) has the value 2^-24, like the last bit of a float16 below
  // 2^-14.
  float shifted;
  __builtin_memcpy(&shifted, &absolute, sizeof(shifted));
  shifted += 0.5f;
  uint32_t subnormal;
  __builtin_memcpy(&subnormal, &shifted, sizeof(subnormal));
  subnormal -= 0x3f000000u;
  const uint32_t small = absolute < kLeastNormalFloat16 ? subnormal : normal;
  return WithSignOrNan(bits, absolute >= 0x477ff000u ? kFloat16Infinity : small);
}

// Return one of the two float16 numbers nearest to a number: the next lower or the next higher. The
// probability of the higher number is chosen so that the expected value of the result is `value`,
// with an error of at most 2^-32 of the last bit. The uniform 32-bit number `random` is added to
// the discarded bits; the first discarded bit has the weight 2^31. If the addition to the discarded
// bits has a carry, the number is rounded away from zero. For numbers between 65504 and 65536, the
// next higher float16 is infinity. A number that is already a float16 stays unchanged; NaN stays
// NaN.
__attribute__((always_inline)) inline uint16_t ToFloat16(float value, uint32_t random) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  const uint32_t absolute = bits & 0x7fffffffu;
  const bool is_normal = absolute >= kLeastNormalFloat16;
  const uint32_t exponent = absolute >> 23;
  const uint32_t mantissa = (absolute & 0x7fffffu) | (exponent > 0 ? 0x800000u : 0u);
  // Number of discarded mantissa bits. A float16 below 2^-14 has fewer bits of precision than a
  // larger float16, so more bits are discarded.
  const uint32_t small = 126u - exponent;
  const uint32_t cut = is_normal ? 13u : (small < 63u ? small : 63u);
  const uint32_t kept =
      is_normal ? (absolute >> 13) - (112u << 10) : mantissa >> (cut < 31u ? cut : 31u);
  const uint32_t up_to_32 = mantissa << ((32u - cut) & 31u);
  const uint32_t beyond_32 = mantissa >> ((cut - 32u) & 31u);
  const uint32_t fraction = cut < 32u ? up_to_32 : beyond_32;
  const uint32_t carry = fraction + random < fraction ? 1u : 0u;
  return WithSignOrNan(bits, absolute >= 0x47800000u ? kFloat16Infinity : kept + carry);
}

__attribute__((always_inline)) inline float FromFloat16(uint16_t half) {
  const uint32_t magnitude = half & 0x7fffu;
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  const float small = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f;
  uint32_t subnormal;
  __builtin_memcpy(&subnormal, &small, sizeof(subnormal));
  const uint32_t quiet = magnitude > kFloat16Infinity ? 0x400000u : 0u;
  const uint32_t special = magnitude << 13 | 0x7f800000u | quiet;
  const uint32_t finite = magnitude < 0x400u ? subnormal : normal;
  const uint32_t bits = static_cast<uint32_t>(half & 0x8000u) << 16 |
                        (magnitude >= kFloat16Infinity ? special : finite);
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace msrec
