// SPDX-License-Identifier: Apache-2.0
#include "util/bfloat16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "testing.h"

namespace msrec {
namespace {

TEST(Bfloat16, EveryOneOfThemIsItsOwn) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const float value = FromBfloat16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(FromBfloat16(ToBfloat16(value))));
    } else {
      EXPECT_EQ(ToBfloat16(value), bits);
    }
  }
}

TEST(Bfloat16, TheNearestIsTakenAndOfTwoTheEven) {
  EXPECT_EQ(FromBfloat16(ToBfloat16(1.0f + 0x1p-8f)), 1.0f);  // in the middle
  EXPECT_EQ(FromBfloat16(ToBfloat16(1.0f + 0x3p-8f)), 1.0f + 0x1p-6f);
  EXPECT_EQ(FromBfloat16(ToBfloat16(1.0f + 0x1.001p-8f)), 1.0f + 0x1p-7f);
  Rng rng(1);
  for (int i = 0; i < 100000; ++i) {
    const float value = std::ldexp(rng.Float(-1.0f, 1.0f), static_cast<int>(rng.Below(60)) - 30);
    EXPECT_LE(std::abs(FromBfloat16(ToBfloat16(value)) - value), std::abs(value) * 0x1p-8f);
  }
}

TEST(Bfloat16, WhatIsNoNumberStaysWhatItIs) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(FromBfloat16(ToBfloat16(-infinity)), -infinity);
  EXPECT_EQ(FromBfloat16(ToBfloat16(std::numeric_limits<float>::max())), infinity);
  EXPECT_TRUE(std::isnan(FromBfloat16(ToBfloat16(std::nanf("1")))));
  EXPECT_TRUE(std::signbit(FromBfloat16(ToBfloat16(-0.0f))));
}

}  // namespace
}  // namespace msrec
