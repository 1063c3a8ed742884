// SPDX-License-Identifier: Apache-2.0
//
// The logistic loss against its formula in double, on every instruction set and any number of
// threads.
#include "dense/logistic_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "dense/elementwise.h"
#include "testing.h"
#include "util/thread_pool.h"

namespace msrec {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

double Loss(double x, double y) {
  return (1.0 - y) * x + std::max(-x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}

double Slope(double x, double y) { return 1.0 / (1.0 + std::exp(-x)) - y; }

struct Numbers {
  std::vector<float> logits, labels;

  Numbers(int64_t n, float most, uint64_t seed) {
    Rng rng(seed);
    for (int64_t i = 0; i < n; ++i) {
      logits.push_back(rng.Float(-most, most));
      labels.push_back(i % 3 == 0 ? rng.Float(0.0f, 1.0f) : static_cast<float>(i % 2));
    }
  }
  LogisticBatch batch() const {
    return {static_cast<int64_t>(logits.size()), logits.data(), labels.data()};
  }
};

TEST(LogisticLoss, IsTheFormula) {
  ThreadPool pool(2);
  for (const float most : {1e-3f, 3.0f, 95.0f}) {
    for (const int64_t n : {1, 15, 16, 17, 257, 4096, 4097, 20000}) {
      const Numbers numbers(n, most, 3);
      std::vector<float> gradient(n);
      const double sum = LogisticLossSum(numbers.batch(), 0.5f, gradient.data(), &pool);
      double expected = 0.0;
      for (int64_t i = 0; i < n; ++i) {
        const double x = numbers.logits[i];
        const double y = numbers.labels[i];
        expected += Loss(x, y);
        EXPECT_NEAR(gradient[i], 0.5 * Slope(x, y), 2e-7) << x << " " << y;
      }
      EXPECT_NEAR(sum, expected, 3e-7 * expected + 1e-12) << n << " up to " << most;
    }
  }
}

TEST(LogisticLoss, SetsAndThreadsGiveTheSameBits) {
  const Numbers numbers(50001, 30.0f, 5);
  std::vector<float> first(50001), other(50001);
  ThreadPool one(1), three(3);
  const double sum = LogisticLossSum(numbers.batch(), 0.25f, first.data(), &one);
  EXPECT_EQ(sum, LogisticLossSum(numbers.batch(), 0.25f, other.data(), &three));
  EXPECT_EQ(0, std::memcmp(first.data(), other.data(), 4 * first.size()));
  const Elementwise& base = *FindElementwise("base");
  const double whole =
      base.logistic_loss(50001, numbers.logits.data(), numbers.labels.data(), 0.25f, first.data());
  for (const char* name : {"avx2", "avx512"}) {
    const Elementwise* set = FindElementwise(name);
    if (set == nullptr) continue;
    EXPECT_EQ(whole, set->logistic_loss(50001, numbers.logits.data(), numbers.labels.data(), 0.25f,
                                        other.data()));
    EXPECT_EQ(0, std::memcmp(first.data(), other.data(), 4 * first.size())) << name;
  }
}

TEST(LogisticLoss, SpecialLogits) {
  ThreadPool pool(1);
  const auto of = [&](float x, float y, float* slope) {
    return LogisticLossSum({1, &x, &y}, 1.0f, slope, &pool);
  };
  float slope = 0.0f;
  EXPECT_TRUE(std::isnan(of(std::nanf(""), 1.0f, &slope)));
  EXPECT_TRUE(std::isnan(slope));
  EXPECT_TRUE(std::isnan(of(0.0f, std::nanf(""), &slope)));
  EXPECT_TRUE(std::isnan(slope));
  EXPECT_EQ(of(kInf, 0.0f, &slope), kInf);
  EXPECT_EQ(slope, 1.0f);
  EXPECT_TRUE(std::isnan(of(kInf, 1.0f, &slope)));  // as MindSpore's
  EXPECT_EQ(slope, 0.0f);
  EXPECT_TRUE(std::isnan(of(-kInf, 0.0f, &slope)));
  EXPECT_EQ(slope, 0.0f);
  EXPECT_EQ(LogisticLossSum({0, nullptr, nullptr}, 1.0f, nullptr, &pool), 0.0);
}

TEST(LogisticLoss, GradientsAreScaled) {
  ThreadPool pool(2);
  const Numbers numbers(5000, 3.0f, 7);
  std::vector<float> of_logits(5000), of_labels(5000);
  LogisticLossGradients(numbers.batch(), 0.5f, numbers.labels.data(), -3.0f, of_logits.data(),
                        of_labels.data(), &pool);
  for (size_t i = 0; i < 5000; ++i) {
    EXPECT_EQ(of_logits[i], -3.0f * numbers.labels[i]);
    EXPECT_EQ(of_labels[i], 1.5f * numbers.logits[i]);
  }
}

}  // namespace
}  // namespace msrec
