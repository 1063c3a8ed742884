// SPDX-License-Identifier: Apache-2.0
//
// Random numbers, and the check of a gradient by differences.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "testing.h"

namespace msrec {

using Numbers = std::vector<float>;

inline Numbers DrawnNumbers(int64_t n, uint64_t seed) {
  Rng rng(seed);
  Numbers x(static_cast<size_t>(n));
  for (float& each : x) each = rng.Float(-1.0f, 1.0f);
  return x;
}

inline double DotOfNumbers(const Numbers& a, const Numbers& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

// Checks a gradient of the sum of outputs times `weights` by a difference along a random direction.
inline void ExpectGradient(const std::function<Numbers(const Numbers&)>& forward, const Numbers& x,
                           const Numbers& weights, const Numbers& gradient) {
  const Numbers direction = DrawnNumbers(static_cast<int64_t>(x.size()), 77);
  const auto at = [&](float step) {
    Numbers moved = x;
    for (size_t i = 0; i < x.size(); ++i) moved[i] += step * direction[i];
    return DotOfNumbers(forward(moved), weights);
  };
  const double expected = DotOfNumbers(gradient, direction);
  EXPECT_NEAR((at(2e-3f) - at(-2e-3f)) / 4e-3, expected, 2e-2 * std::max(1.0, std::fabs(expected)));
}

}  // namespace msrec
