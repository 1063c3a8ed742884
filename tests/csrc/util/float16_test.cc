// SPDX-License-Identifier: Apache-2.0
//
// float16 and bfloat16 against the definition of their numbers, all of them.
#include "util/float16.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "testing.h"
#include "util/bfloat16.h"
#include "util/hash.h"

namespace msrec {
namespace {

uint32_t Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// The number that the bits of a finite float16 stand for, by IEEE 754.
double Meaning(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const double fraction = (half & 0x3ff) / 1024.0;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1.0 + fraction, exponent - 15);
  return half & 0x8000 ? -magnitude : magnitude;
}

TEST(Float16, ReadsEveryNumberAndWritesItBack) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const auto half = static_cast<uint16_t>(h);
    const float value = FromFloat16(half);
    if ((half & 0x7fff) < 0x7c00) {
      ASSERT_EQ(value, Meaning(half)) << h;
      ASSERT_EQ(std::signbit(value), (half & 0x8000) != 0) << h;
    } else if ((half & 0x7fff) == 0x7c00) {
      ASSERT_TRUE(std::isinf(value)) << h;
    } else {
      ASSERT_TRUE(std::isnan(value)) << h;
      ASSERT_NE(Bits(value) & 0x400000u, 0u) << "a quiet NaN";
    }
    const bool signalling = (half & 0x7fff) > 0x7c00 && (half & 0x200) == 0;
    const auto same = static_cast<uint16_t>(signalling ? half | 0x200 : half);
    ASSERT_EQ(ToFloat16(value), same) << h;
    for (const uint32_t random : {0u, 0x7fffffffu, 0xffffffffu}) {
      ASSERT_EQ(ToFloat16(value, random), same) << h;
      // bfloat16 has all exponents: every float16 of 8 bits of precision is one.
      const float narrow = FromBfloat16(static_cast<uint16_t>(h));
      if (!std::isnan(narrow)) {
        ASSERT_EQ(ToBfloat16(narrow, random), half) << h;
      }
    }
  }
}

TEST(Float16, WritesTheNearestAndOfTwoTheEvenOne) {
  for (uint32_t h = 0; h < 0x7bff; ++h) {
    const double low = Meaning(static_cast<uint16_t>(h));
    const double high = Meaning(static_cast<uint16_t>(h + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // has at most 12 bits
    ASSERT_EQ(ToFloat16(middle), h % 2 == 0 ? h : h + 1) << h;
    ASSERT_EQ(ToFloat16(std::nextafter(middle, 0.0f)), h) << h;
    ASSERT_EQ(ToFloat16(std::nextafter(middle, 1e9f)), h + 1) << h;
    ASSERT_EQ(ToFloat16(-std::nextafter(middle, 1e9f)), (h + 1) | 0x8000) << h;
  }
  EXPECT_EQ(ToFloat16(65519.99f), 0x7bff);
  EXPECT_EQ(ToFloat16(65520.0f), 0x7c00);
  EXPECT_EQ(ToFloat16(3e38f), 0x7c00);
  EXPECT_EQ(ToFloat16(1e-40f), 0);
  EXPECT_EQ(ToFloat16(-0.0f), 0x8000);
}

// Rounds the same number by chance many times; returns how far the mean is from it in standard
// errors.
template <typename Round>
double Drift(float value, size_t draws, double low, double high, Round round) {
  uint64_t state = Mix64(Bits(value));
  size_t up = 0;
  for (size_t i = 0; i < draws; ++i) {
    state = Mix64(state + 0x9e3779b97f4a7c15ULL);
    const double got = round(value, static_cast<uint32_t>(state));
    EXPECT_TRUE(got == low || got == high) << value;
    up += got == high;
  }
  const double p = (value - low) / (high - low);
  return (static_cast<double>(up) - p * draws) / std::sqrt(draws * p * (1.0 - p));
}

TEST(Float16, RoundsByChanceToItsNeighboursWithTheirProbability) {
  Rng rng(3);
  for (int i = 0; i < 60; ++i) {
    // Normal and subnormal float16, and numbers far below the least of them.
    const float value = std::ldexp(rng.Float(1.0f, 2.0f), static_cast<int>(rng.Below(36)) - 30);
    uint16_t half = ToFloat16(value);
    if (Meaning(half) > value) --half;
    const double low = Meaning(half);
    const double high = Meaning(static_cast<uint16_t>(half + 1));
    const double drift = Drift(value, 200000, low, high, [](float x, uint32_t random) {
      return static_cast<double>(FromFloat16(ToFloat16(x, random)));
    });
    EXPECT_LT(std::fabs(drift), 5.0) << value;
  }
}

TEST(Bfloat16, RoundsByChanceToItsNeighboursWithTheirProbability) {
  Rng rng(4);
  for (int i = 0; i < 60; ++i) {
    const float value = std::ldexp(rng.Float(1.0f, 2.0f), static_cast<int>(rng.Below(250)) - 140);
    const auto half = static_cast<uint16_t>(Bits(value) >> 16);
    const double low = FromBfloat16(half);
    const double high = FromBfloat16(static_cast<uint16_t>(half + 1));
    if (low == value) continue;
    const double drift = Drift(value, 200000, low, high, [](float x, uint32_t random) {
      return static_cast<double>(FromBfloat16(ToBfloat16(x, random)));
    });
    EXPECT_LT(std::fabs(drift), 5.0) << value;
  }
}

TEST(Float16, KeepsInfinityAndNanWhateverTheChance) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const uint32_t random : {0u, 0x12345678u, 0xffffffffu}) {
    EXPECT_EQ(ToFloat16(infinity, random), 0x7c00);
    EXPECT_EQ(ToFloat16(-infinity, random), 0xfc00);
    EXPECT_EQ(ToBfloat16(infinity, random), 0x7f80);
    EXPECT_EQ(ToFloat16(-0.0f, random), 0x8000);
    EXPECT_EQ(ToBfloat16(-0.0f, random), 0x8000);
    EXPECT_TRUE(std::isnan(FromFloat16(ToFloat16(std::nanf("1"), random))));
    EXPECT_TRUE(std::isnan(FromBfloat16(ToBfloat16(std::nanf("1"), random))));
    EXPECT_EQ(ToFloat16(1e30f, random), 0x7c00);
  }
  // A float32 below the least float16 by far is rounded to it once in many times only.
  EXPECT_EQ(ToFloat16(std::ldexp(1.0f, -50), 0u), 0);
  EXPECT_EQ(ToFloat16(std::ldexp(1.0f, -50), 0xffffffffu), 1);
}

}  // namespace
}  // namespace msrec
