// SPDX-License-Identifier: Apache-2.0
//
// Element-wise loops: the same bits on every instruction set, and the right numbers.
#include "dense/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "dense_testing.h"
#include "testing.h"

namespace msrec {
namespace {

constexpr Activation kActivations[] = {Activation::kNone, Activation::kRelu, Activation::kLeakyRelu,
                                       Activation::kTanh, Activation::kSigmoid};
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float OfBits(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

// Numbers of all magnitudes, both signs, and everything that is special.
std::vector<float> Numbers() {
  std::vector<float> numbers = {0.0f,     -0.0f,    kInf,      -kInf,     kNan,     1e-45f,
                                -1e-45f,  1e-39f,   -1e-39f,   1e30f,     -1e30f,   3.4e38f,
                                -3.4e38f, 88.7228f, 88.73f,    -87.3365f, -87.34f,  -103.0f,
                                0.625f,   -0.625f,  0.624999f, 9.01f,     -20000.0f};
  for (uint32_t bits = 0; bits < 0x7f800000; bits += 104729 * kFewer) {
    numbers.push_back(OfBits(bits));
    numbers.push_back(-OfBits(bits));
  }
  Rng rng(5);
  for (size_t i = 0; i < 200000 / kFewer; ++i) numbers.push_back(rng.Float(-95.0f, 95.0f));
  for (size_t i = 0; i < 50000 / kFewer; ++i) numbers.push_back(rng.Float(-2.0f, 2.0f));
  return numbers;
}

std::vector<const Elementwise*> Sets() {
  std::vector<const Elementwise*> sets;
  for (const char* name : {"base", "avx2", "avx512"}) {
    if (FindElementwise(name) != nullptr) sets.push_back(FindElementwise(name));
  }
  return sets;
}

std::vector<float> Activated(const Elementwise& set, Activation a, std::vector<float> x) {
  const auto n = static_cast<int64_t>(x.size());
  if (a == Activation::kGelu) {
    std::vector<float> y(x.size());
    set.gelu(1, n, {x.data(), n}, {y.data(), n});
    return y;
  }
  set.activate(a, nullptr, 1, n, {x.data(), n});
  return x;
}

double Exact(Activation a, double x) {
  switch (a) {
    case Activation::kRelu:
      return x < 0 ? 0 : x;
    case Activation::kLeakyRelu:
      return x > 0 ? x : static_cast<double>(0.2f) * x;
    case Activation::kGelu:
      return x < -1e8 ? 0
                      : 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    default:
      return x;
  }
}

// Bits of NaN may differ: which operand's NaN an addition returns is the compiler's choice.
::testing::AssertionResult SameNumbers(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << "sizes";
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) {
      return ::testing::AssertionFailure() << "at " << i << ": " << a[i] << " and " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

TEST(Elementwise, ActivationsAreRight) {
  const std::vector<float> x = Numbers();
  for (const Activation a : {Activation::kRelu, Activation::kLeakyRelu, Activation::kGelu,
                             Activation::kTanh, Activation::kSigmoid}) {
    const std::vector<float> y = Activated(*FindElementwise("base"), a, x);
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(x[i])) {
        ASSERT_TRUE(std::isnan(y[i])) << "activation " << static_cast<int>(a);
        continue;
      }
      const double exact = Exact(a, static_cast<double>(x[i]));
      const double least = a == Activation::kGelu && x[i] < 0 ? 1e-6 : 1e-38;
      if (std::isinf(x[i]) && a == Activation::kGelu) continue;  // a test of its own
      if (std::isinf(exact)) {
        ASSERT_EQ(static_cast<double>(y[i]), exact);
      } else {
        ASSERT_NEAR(y[i], exact, 6e-7 * std::abs(exact) + least)
            << "activation " << static_cast<int>(a) << " of " << x[i];
      }
    }
  }
}

TEST(Elementwise, GeluAndItsSlopeAtTheEnds) {
  const Elementwise& set = *FindElementwise("base");
  std::vector<float> x = {kInf, 3e38f, 1e20f, 2e19f, 1e13f, 100.0f};
  const auto n = static_cast<int64_t>(x.size());
  std::vector<float> slope(x.size(), 1.0f);
  set.gelu_gradient(1, n, {x.data(), n}, {slope.data(), n});
  EXPECT_EQ(Activated(set, Activation::kGelu, x), x);
  for (const float s : slope) EXPECT_EQ(s, 1.0f);
  for (float& v : x) v = -v;
  std::fill(slope.begin(), slope.end(), 1.0f);
  set.gelu_gradient(1, n, {x.data(), n}, {slope.data(), n});
  for (const float y : Activated(set, Activation::kGelu, x)) EXPECT_EQ(y, 0.0f);
  for (const float s : slope) EXPECT_EQ(s, 0.0f);
}

TEST(Elementwise, GradientsAreSlopes) {
  Rng rng(6);
  const Elementwise& set = *FindElementwise("base");
  for (const Activation a : {Activation::kRelu, Activation::kLeakyRelu, Activation::kGelu,
                             Activation::kTanh, Activation::kSigmoid}) {
    std::vector<float> x = rng.Floats(5000, -6.0f, 6.0f);
    const auto n = static_cast<int64_t>(x.size());
    std::vector<float> g(x.size(), 3.0f);
    if (a == Activation::kGelu) {
      set.gelu_gradient(1, n, {x.data(), n}, {g.data(), n});
    } else {
      std::vector<float> y = Activated(set, a, x);
      set.activation_gradient(a, 1, n, {y.data(), n}, {g.data(), n}, nullptr);
    }
    for (size_t i = 0; i < x.size(); ++i) {
      const double at = x[i], step = 1e-5;
      if (std::abs(at) < 1e-4) continue;  // rectifiers have a corner
      const double slope = (Exact(a, at + step) - Exact(a, at - step)) / (2 * step);
      ASSERT_NEAR(g[i], 3.0 * slope, 5e-6) << "activation " << static_cast<int>(a) << " at " << at;
    }
  }
}

TEST(Elementwise, ActivationsAndTheirGradientsPassNaNOn) {
  for (const Elementwise* set : Sets()) {
    for (const Activation a : {Activation::kNone, Activation::kRelu, Activation::kLeakyRelu,
                               Activation::kTanh, Activation::kSigmoid}) {
      std::vector<float> y(37, kNan), g(37, 1.0f);
      set->activate(a, nullptr, 1, 37, {y.data(), 37});
      std::vector<float> from_below(37, kNan), above(37, 0.5f);
      set->activation_gradient(a, 1, 37, {above.data(), 37}, {from_below.data(), 37}, nullptr);
      set->activation_gradient(a, 1, 37, {y.data(), 37}, {g.data(), 37}, nullptr);
      for (size_t i = 0; i < y.size(); ++i) {
        ASSERT_TRUE(std::isnan(y[i])) << set->name << " " << static_cast<int>(a);
        ASSERT_TRUE(std::isnan(from_below[i])) << set->name << " " << static_cast<int>(a);
        ASSERT_NE(g[i], 0.0f) << set->name << " " << static_cast<int>(a);
      }
    }
  }
}

TEST(Elementwise, SlopesOfRectifiersAtZeroAreThoseOfMindSpore) {
  for (const Elementwise* set : Sets()) {
    for (const auto& [a, slope] :
         {std::pair{Activation::kRelu, 0.0f}, std::pair{Activation::kLeakyRelu, 0.6f}}) {
      float y[] = {0.0f, -0.0f}, g[] = {1.0f, 1.0f};
      set->activation_gradient(a, 1, 2, {y, 2}, {g, 2}, nullptr);
      EXPECT_EQ(g[0], slope);
      EXPECT_EQ(g[1], slope);
    }
  }
}

// Runs every loop on a block with gaps between rows, and returns all that it wrote.
std::vector<float> EveryLoop(const Elementwise& set, int64_t rows, int64_t width, uint64_t seed) {
  const int64_t ld = width + 3;
  Rng rng(seed);
  const std::vector<float> numbers = {0.0f, -0.0f, 1e-40f, kInf, -kInf, kNan, 1e30f, -3e38f};
  const auto floats = [&](float range) {
    std::vector<float> x = rng.Floats(static_cast<size_t>(rows * ld), -range, range);
    for (float& v : x) {
      if (rng.OneIn(30)) v = numbers[rng.Below(numbers.size())];
    }
    return x;
  };
  std::vector<float> all;
  const auto keep = [&](const std::vector<float>& x) { all.insert(all.end(), x.begin(), x.end()); };
  const auto block = [&](std::vector<float>& x) { return Block{x.data(), ld}; };
  for (const Activation a : kActivations) {
    std::vector<float> x = floats(20.0f), bias = floats(1.0f), g = floats(1.0f);
    std::vector<float> sums = floats(1.0f);
    set.activate(a, rng.OneIn(3) ? nullptr : bias.data(), rows, width, block(x));
    set.activation_gradient(a, rows, width, block(x), block(g), sums.data());
    keep(x), keep(g), keep(sums);
  }
  std::vector<float> x = floats(20.0f), y = floats(1.0f), z = floats(1.0f), out = floats(1.0f);
  set.gelu(rows, width, block(x), block(out));
  keep(out);
  set.gelu_gradient(rows, width, block(x), block(out));
  keep(out);
  set.column_sums(rows, width, block(x), out.data());
  keep(out);
  set.multiply_add(rows, width, block(x), block(y), block(z), block(out));
  set.add_product(rows, width, block(x), block(y), block(out));
  set.add(rows, width, block(z), block(out));
  keep(out);
  set.round_to_float(rows, width, block(x), block(out));
  keep(out);
  std::vector<uint16_t> halves(static_cast<size_t>(rows * ld), 7);
  set.round_bfloat16(rows, width, block(x), halves.data(), ld);
  for (const uint16_t half : halves) all.push_back(OfBits(static_cast<uint32_t>(half) << 16));
  std::vector<float> p = rng.Floats(static_cast<size_t>(rows * ld), -30.0f, 30.0f);
  set.softmax(rows, width / 2, 2, block(p));
  set.softmax_gradient(rows, width / 2, 2, block(p), block(y));
  keep(p), keep(y);
  return all;
}

TEST(Elementwise, AllSetsGiveTheSameBits) {
  const std::vector<float> x = Numbers();
  for (const Elementwise* set : Sets()) {
    for (const Activation a : kActivations) {
      ASSERT_TRUE(SameNumbers(Activated(*FindElementwise("base"), a, x), Activated(*set, a, x)))
          << set->name << " " << static_cast<int>(a);
    }
    ASSERT_TRUE(SameNumbers(Activated(*FindElementwise("base"), Activation::kGelu, x),
                            Activated(*set, Activation::kGelu, x)))
        << set->name;
    for (int64_t width = 1; width < 70; ++width) {
      for (const int64_t rows : {1, 3}) {
        ASSERT_TRUE(SameNumbers(EveryLoop(*FindElementwise("base"), rows, width, 9),
                                EveryLoop(*set, rows, width, 9)))
            << set->name << " " << width;
      }
    }
  }
}

TEST(Elementwise, NothingIsWrittenBetweenRowsOrReadThere) {
  for (const Elementwise* set : Sets()) {
    for (const int64_t width : {1, 7, 16, 33}) {
      const int64_t ld = width + 5, rows = 4;
      Poisoned x(rows * ld), y(rows * ld);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t j = 0; j < width; ++j) x.data()[r * ld + j] = y.data()[r * ld + j] = 0.5f;
      }
      const Block a{x.data(), ld}, b{y.data(), ld};
      set->activate(Activation::kSigmoid, nullptr, rows, width, a);
      set->activation_gradient(Activation::kSigmoid, rows, width, a, b, nullptr);
      set->gelu(rows, width, a, b);
      set->multiply_add(rows, width, a, a, a, b);
      set->softmax(rows, 1, width, b);
      for (const Poisoned* memory : {&x, &y}) {
        ASSERT_TRUE(memory->GuardsAreWhole());
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t j = 0; j < ld; ++j) {
            ASSERT_EQ(std::isnan(memory->data()[r * ld + j]), j >= width) << set->name;
          }
        }
      }
    }
  }
}

TEST(Elementwise, RoundsToTheNearestBfloat16) {
  const auto round = [](float x) {
    float y;
    FindElementwise("base")->round_to_float(1, 1, {&x, 1}, {&y, 1});
    return y;
  };
  EXPECT_EQ(round(1.0f), 1.0f);
  EXPECT_EQ(round(1.00390625f), 1.0f) << "ties to even";
  EXPECT_EQ(round(1.01171875f), 1.015625f) << "ties to even";
  EXPECT_EQ(round(1.0039064f), 1.0078125f);
  EXPECT_EQ(round(3.4028e38f), kInf) << "above the largest bfloat16";
  EXPECT_EQ(round(-kInf), -kInf);
  EXPECT_TRUE(std::isnan(round(OfBits(0x7f800001)))) << "a NaN whose bits are all low";
  EXPECT_TRUE(std::isnan(round(OfBits(0xffffffff))));
  for (const float x : Numbers()) {
    if (std::isnan(x) || std::abs(x) > 3.38e38f) continue;
    const double error = std::abs(static_cast<double>(round(x)) - static_cast<double>(x));
    ASSERT_LE(error, std::abs(static_cast<double>(x)) / 256 + 5e-41) << x;
    ASSERT_EQ(std::signbit(round(x)), std::signbit(x));
  }
}

TEST(Elementwise, SoftmaxIsRight) {
  Rng rng(7);
  for (const int64_t group : {1, 2, 5, 40}) {
    std::vector<float> x = rng.Floats(static_cast<size_t>(6 * group), -80.0f, 80.0f);
    const std::vector<float> before = x;
    FindElementwise("base")->softmax(2, 3, group, {x.data(), 3 * group});
    for (int64_t k = 0; k < 6; ++k) {
      double total = 0, most = -1e300;
      for (int64_t j = 0; j < group; ++j) most = std::max(most, double{before[k * group + j]});
      for (int64_t j = 0; j < group; ++j) total += std::exp(before[k * group + j] - most);
      for (int64_t j = 0; j < group; ++j) {
        const double exact = std::exp(before[k * group + j] - most) / total;
        ASSERT_NEAR(x[k * group + j], exact, 1e-6 * exact + 1e-37);
      }
    }
  }
}

}  // namespace
}  // namespace msrec
