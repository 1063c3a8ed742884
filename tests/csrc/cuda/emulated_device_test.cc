// SPDX-License-Identifier: Apache-2.0
//
// What the tests of kernels rely on: products, and memory that is watched.
#include "emulated_device.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "cuda/kernel_arguments.h"

namespace msrec {
namespace {

// a [2, 3] b [3, 2]
TEST(EmulatedDevice, MultipliesTransposedFactors) {
  const float a[] = {1, 2, 3, 4, 5, 6}, at[] = {1, 4, 2, 5, 3, 6};
  const float b[] = {1, 2, 3, 4, 5, 6}, bt[] = {1, 3, 5, 2, 4, 6};
  EmulatedDevice device;
  for (const bool of_a : {false, true}) {
    for (const bool of_b : {false, true}) {
      ProductShape shape;
      shape.m = shape.n = shape.ldc = 2;
      shape.k = 3;
      shape.lda = of_a ? 2 : 3;
      shape.ldb = of_b ? 3 : 2;
      shape.transposed_a = of_a;
      shape.transposed_b = of_b;
      float c[] = {100, 100, 100, 100};
      device.Multiply(shape, of_a ? at : a, of_b ? bt : b, c);
      EXPECT_EQ(c[0], 22);
      EXPECT_EQ(c[1], 28);
      EXPECT_EQ(c[2], 49);
      EXPECT_EQ(c[3], 64);
    }
  }
}

TEST(EmulatedDevice, AddsProductsOfBfloat16) {
  const uint16_t three = 0x4040, half = 0x3f00;
  ProductShape shape;
  shape.m = shape.n = shape.k = shape.lda = shape.ldb = shape.ldc = 1;
  shape.type = FactorType::kBFloat16;
  shape.accumulates = true;
  float c = 10.0f;
  EmulatedDevice device;
  device.Multiply(shape, &three, &half, &c);
  EXPECT_EQ(c, 11.5f);
}

TEST(EmulatedDevice, MemoryIsPoisonedAndWatched) {
  EmulatedDevice device;
  auto* whole = static_cast<float*>(device.Allocate(3 * sizeof(float)));
  EXPECT_TRUE(std::isnan(whole[2]));
  auto* broken = static_cast<float*>(device.Allocate(3 * sizeof(float)));
  broken[3] = 1.0f;
  EXPECT_EQ(device.allocated(), 2u);
  device.Free(whole);
  EXPECT_THROW(device.Free(broken), std::logic_error);
  EXPECT_THROW(device.Free(whole), std::logic_error);
  device.Free(nullptr);
  EXPECT_EQ(device.allocated(), 0u);
}

TEST(EmulatedDevice, RefusesWhatAGpuCannotStart) {
  EmulatedDevice device;
  const kernels::ClearArguments arguments = {1, {nullptr, 1}};
  EXPECT_THROW(device.Launch("NoSuchKernel", 1, arguments), std::logic_error);
  EXPECT_THROW(device.Launch("Clear", int64_t{1} << 32, arguments), std::logic_error);
  device.Launch("Clear", 0, arguments);
  EXPECT_EQ(device.started(), 0);
}

}  // namespace
}  // namespace msrec
