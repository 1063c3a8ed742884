// SPDX-License-Identifier: Apache-2.0
//
// GradientTokens: checks that a table's optimizer receives the gradient that the table has summed.
// A graph passes no rows to the optimizer, only a token for each backward pass of a lookup;
// MindSpore adds the tokens of several passes. Arithmetic on gradients (a mean over passes, a
// scale, a clip) would silently change dense gradients but not the rows. Arithmetic on gradients
// also changes the tokens, so the step can refuse the gradient.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>

namespace msrec {

class GradientTokens {
 public:
  // Return a new token, a whole number in [1024, 2048). Successive tokens are far apart, so another
  // sum of tokens is unlikely to be equal. Any thread may call.
  static float Next() {
    static std::atomic<uint32_t> made{0};
    constexpr uint32_t kFar = 0x9e3779b9;  // 2^32 divided by the golden ratio
    return static_cast<float>(1024 + ((made.fetch_add(1, std::memory_order_relaxed) * kFar) >> 22));
  }

  void Add(float token) { sum_ += token; }
  void Reset() { sum_ = 0.0; }
  double sum() const { return sum_; }
  // Whether `received` is the sum of the tokens. In float32, sums of whole numbers are exact up to
  // 2^24, which is thousands of tokens. Larger sums may differ by a thousandth.
  bool Fits(float received) const {
    const double off = std::fabs(double{received} - sum_);
    return off <= (sum_ < 0x1p24 ? 0.0 : 1e-3 * sum_);  // false for NaN
  }

 private:
  double sum_ = 0.0;
};

}  // namespace msrec
