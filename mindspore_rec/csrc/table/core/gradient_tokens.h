// SPDX-License-Identifier: Apache-2.0
//
// GradientTokens: detects arithmetic that a graph applies to a table's gradients before the
// optimizer step. The gradients of a table's rows stay inside the table. For each backward pass of
// a lookup, the graph passes only a token to the optimizer. If there are several backward passes,
// MindSpore adds up the tokens. Arithmetic on gradients (a mean over passes, a scale, a clip) would
// change the gradients of dense parameters but not the gradients of rows. Arithmetic on gradients
// also changes the sum of the tokens, so the optimizer step detects the arithmetic and throws.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>

namespace msrec {

class GradientTokens {
 public:
  // Return a new token, a whole number in [1024, 2048). Successive tokens are far apart, so that
  // different sets of tokens are unlikely to have the same sum. Any thread may call.
  static float Next() {
    static std::atomic<uint32_t> made{0};
    constexpr uint32_t kFar = 0x9e3779b9;  // 2^32 divided by the golden ratio
    return static_cast<float>(1024 + ((made.fetch_add(1, std::memory_order_relaxed) * kFar) >> 22));
  }

  void Add(float token) { sum_ += token; }
  void Reset() { sum_ = 0.0; }
  double sum() const { return sum_; }
  // Return whether `received` is the sum of the tokens. In float32, sums of whole numbers are exact
  // up to 2^24, which is enough for thousands of tokens. For sums above 2^24, a relative difference
  // of 1/1000 is accepted.
  bool Fits(float received) const {
    const double off = std::fabs(double{received} - sum_);
    return off <= (sum_ < 0x1p24 ? 0.0 : 1e-3 * sum_);  // false for NaN
  }

 private:
  double sum_ = 0.0;
};

}  // namespace msrec
