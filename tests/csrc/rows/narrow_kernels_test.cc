// SPDX-License-Identifier: Apache-2.0
//
// The kernels of rows with two bytes a number: each set's bits against the base set's, rows apart
// against rows, and that stochastic rounding leaves means where they are.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "guarded.h"
#include "rows/kernels.h"
#include "rows/row_values.h"
#include "rows/step_constants.h"
#include "rules.h"
#include "testing.h"
#include "util/bfloat16.h"
#include "util/float16.h"
#include "util/hash.h"

namespace msrec {
namespace {

constexpr NumberType kValues[] = {NumberType::kFloat32, NumberType::kBfloat16,
                                  NumberType::kFloat16};
constexpr NumberType kStates[] = {NumberType::kFloat32, NumberType::kBfloat16};

RowLayout LayoutOf(const Rule& rule, int dim, NumberType value, NumberType state) {
  RowLayout layout;
  layout.dim = dim;
  layout.state_width = rule.StateWidth(dim);
  layout.value_type = value;
  layout.state_type = state;
  return layout;
}

// Numbers of all sizes, infinities, NaN and zeros of both signs among them.
std::vector<float> AnyFloats(Rng* rng, size_t n) {
  std::vector<float> numbers(n);
  for (float& x : numbers) {
    const auto bits = static_cast<uint32_t>(rng->Bits());
    std::memcpy(&x, &bits, sizeof(x));
    if (rng->OneIn(3)) x = rng->Float(-1.0f, 1.0f);
    if (rng->OneIn(20)) x = -0.0f;
    if (rng->OneIn(40)) x = std::numeric_limits<float>::infinity();
  }
  return numbers;
}

class Rows {
 public:
  Rows(const RowLayout& layout, size_t n, Rng* rng) : memory_(n * layout.stride()) {
    for (size_t i = 0; i < n; ++i) {
      char* row = memory_.data() + i * layout.stride();
      Meta(row)->key = static_cast<int64_t>(rng->Bits());
      WriteValue(layout, AnyFloats(rng, layout.dim).data(), row);
      auto state = AnyFloats(rng, layout.state_width);
      for (float& x : state) x = std::fabs(x);
      WriteState(layout, state.data(), row);
      rows.push_back(i % 7 == 3 ? nullptr : row);
    }
  }
  Rows(const Rows& other) : memory_(other.memory_), rows(other.rows) {
    for (char*& row : rows) {
      if (row != nullptr) row = memory_.data() + (row - other.memory_.data());
    }
  }
  bool operator==(const Rows& other) const { return memory_ == other.memory_; }

 private:
  std::vector<char> memory_;

 public:
  std::vector<char*> rows;
};

class NarrowKernelsTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    kernels_ = FindKernels(GetParam());
    if (kernels_ == nullptr) GTEST_SKIP() << "not on this CPU";
  }
  // Calls fn(value type, state type, dim).
  template <typename Fn>
  void ForEach(Fn fn) {
    for (const NumberType value : kValues) {
      for (const NumberType state : kStates) {
        for (const int dim : {1, 3, 8, 15, 16, 17, 64, 100}) fn(value, state, dim);
      }
    }
  }
  const Kernels* kernels_ = nullptr;
  const Kernels* base_ = FindKernels("base");
  Rng rng_{17};
};
INSTANTIATE_TEST_SUITE_P(Sets, NarrowKernelsTest, ::testing::Values("base", "avx2", "avx512"));

TEST_P(NarrowKernelsTest, SumsAGradientOfTwoBytesAsOfFour) {
  constexpr size_t kPositions = 60;
  for (const int dim : {1, 3, 8, 15, 16, 17, 64, 100}) {
    std::vector<uint16_t> halves(kPositions * dim);
    for (uint16_t& x : halves) {
      x = ToBfloat16(rng_.OneIn(9) ? -0.0f : rng_.Float(-1.0f, 1.0f));
      if (rng_.OneIn(50)) x = 1;  // the least number there is
    }
    std::vector<float> wide(halves.size());
    for (size_t i = 0; i < wide.size(); ++i) wide[i] = FromBfloat16(halves[i]);
    std::vector<uint32_t> slot(kPositions), pos(kPositions), source(kPositions);
    for (uint32_t i = 0; i < kPositions; ++i) {
      slot[i] = static_cast<uint32_t>(rng_.Below(20));
      pos[i] = kPositions - 1 - i;
      source[i] = static_cast<uint32_t>(rng_.Below(kPositions));
    }
    const auto scale = rng_.Floats(kPositions);
    const auto before = rng_.Floats(20 * dim);
    for (const bool has_source : {false, true}) {
      for (const bool has_scale : {false, true}) {
        const uint32_t* from = has_source ? source.data() : nullptr;
        const float* by = has_scale ? scale.data() : nullptr;
        std::vector<float> sums = before, expected = before;
        kernels_->accumulate_bfloat16(slot.data(), pos.data(), kPositions, halves.data(), from, by,
                                      dim, sums.data());
        base_->accumulate(slot.data(), pos.data(), kPositions, wide.data(), from, by, dim,
                          expected.data());
        ASSERT_TRUE(SameBits(sums, expected)) << dim;
      }
    }
  }
}

TEST_P(NarrowKernelsTest, GathersAndPoolsTheNumbersOfRows) {
  ForEach([&](NumberType value, NumberType state, int dim) {
    const RowLayout layout = LayoutOf(Rule{}, dim, value, state);
    const Rows rows(layout, 20, &rng_);
    const auto unknown = rng_.Floats(dim);
    std::vector<uint32_t> inverse(50), pos(50);
    for (uint32_t i = 0; i < 50; ++i) {
      inverse[i] = static_cast<uint32_t>(rng_.Below(20));
      pos[i] = 49 - i;
    }
    std::vector<float> out(50 * dim), expected(50 * dim), pooled(dim), pooled_base(dim);
    kernels_->RowsOf(value, state)
        .gather(rows.rows.data(), inverse.data(), pos.data(), 50, unknown.data(), dim, out.data());
    for (uint32_t i = 0; i < 50; ++i) {
      const char* row = rows.rows[inverse[i]];
      float* at = expected.data() + pos[i] * dim;
      if (row == nullptr) {
        std::copy(unknown.begin(), unknown.end(), at);
      } else {
        ReadValue(layout, row, at);
      }
    }
    ASSERT_TRUE(SameBits(out.data(), expected.data(), out.size())) << NameOf(value) << dim;
    std::vector<uint16_t> halves(50 * dim);
    kernels_->RowsOf(value, state)
        .gather_bfloat16(rows.rows.data(), inverse.data(), pos.data(), 50, unknown.data(), dim,
                         halves.data());
    for (size_t i = 0; i < halves.size(); ++i) {
      ASSERT_EQ(halves[i], ToBfloat16(expected[i])) << NameOf(value) << dim << ' ' << i;
    }
    const auto weights = rng_.Floats(50, -1.0f, 1.0f);
    // NaN apart, whose sign depends on the order of an addition's operands.
    std::vector<char*> finite;
    for (char* row : rows.rows) {
      std::vector<float> numbers(dim, 0.0f);
      if (row != nullptr) ReadValue(layout, row, numbers.data());
      bool fine = true;
      for (const float x : numbers) fine = fine && std::isfinite(x);
      finite.push_back(fine ? row : nullptr);
    }
    kernels_->RowsOf(value, state)
        .pool(finite.data(), inverse.data(), weights.data(), 50, unknown.data(), 0.5f, dim,
              pooled.data());
    base_->RowsOf(value, state)
        .pool(finite.data(), inverse.data(), weights.data(), 50, unknown.data(), 0.5f, dim,
              pooled_base.data());
    for (int j = 0; j < dim; ++j) {
      ASSERT_TRUE(SameBits(&pooled[j], &pooled_base[j], 1) || std::isnan(pooled[j])) << dim;
    }
  });
}

TEST_P(NarrowKernelsTest, StepsAsTheBaseSetAndAsRowsApart) {
  for (const Rule& rule : EveryRule()) {
    ForEach([&](NumberType value, NumberType state, int dim) {
      if (value == NumberType::kFloat32 && state == NumberType::kFloat32) return;
      const RowLayout layout = LayoutOf(rule, dim, value, state);
      const size_t n = 11;
      Rows here(layout, n, &rng_);
      Rows there = here;
      std::vector<int64_t> keys(n);
      std::vector<std::vector<float>> values(n), states(n);
      std::vector<float*> value_at(n), state_at(n);
      for (size_t i = 0; i < n; ++i) {
        if (here.rows[i] == nullptr) continue;
        keys[i] = Meta(here.rows[i])->key;
        values[i].resize(dim);
        states[i].resize(layout.state_width);
        ReadValue(layout, here.rows[i], values[i].data());
        ReadState(layout, here.rows[i], states[i].data());
        value_at[i] = values[i].data();
        state_at[i] = states[i].data();
      }
      for (int step = 1; step <= 3; ++step) {
        const auto sums = rng_.Floats(n * dim);
        StepConstants c = MakeStepConstants(rule, {0.05f, 0.01f, 0.5f, step});
        c.rounding = {step != 2, rng_.Bits()};
        kernels_->RowsOf(value, state).step(c, dim, here.rows.data(), sums.data(), n);
        base_->RowsOf(value, state).step(c, dim, there.rows.data(), sums.data(), n);
        kernels_->RowsOf(value, state)
            .step_apart(c, dim, keys.data(), value_at.data(), state_at.data(), sums.data(), n);
      }
      for (size_t i = 0; i < n; ++i) {
        if (here.rows[i] == nullptr) continue;
        std::vector<float> a(dim + layout.state_width), b(a.size());
        ReadValue(layout, here.rows[i], a.data());
        ReadState(layout, here.rows[i], a.data() + dim);
        ReadValue(layout, there.rows[i], b.data());
        ReadState(layout, there.rows[i], b.data() + dim);
        for (size_t j = 0; j < a.size(); ++j) {
          const float apart = j < values[i].size() ? values[i][j] : states[i][j - dim];
          if (std::isnan(a[j])) {  // whose payload depends on the order of operands
            ASSERT_TRUE(std::isnan(b[j]) && std::isnan(apart));
            continue;
          }
          ASSERT_TRUE(SameBits(&a[j], &b[j], 1))
              << static_cast<int>(rule.kind) << NameOf(value) << NameOf(state) << dim;
          ASSERT_TRUE(SameBits(&a[j], &apart, 1))
              << static_cast<int>(rule.kind) << NameOf(value) << NameOf(state) << dim;
        }
      }
    });
  }
}

// One step from the same numbers, with an epsilon that matters.
TEST_P(NarrowKernelsTest, StepsAsRowsOfFourBytesUpToTheRounding) {
  for (Rule rule : EveryRule()) {
    rule.epsilon = 0.25f;
    ForEach([&](NumberType value, NumberType state, int dim) {
      const RowLayout layout = LayoutOf(rule, dim, value, state);
      const RowLayout wide = LayoutOf(rule, dim, NumberType::kFloat32, NumberType::kFloat32);
      std::vector<char> memory(layout.stride()), expected(wide.stride());
      char *row = memory.data(), *wide_row = expected.data();
      std::vector<float> numbers(dim), states(layout.state_width, 0.125f);
      for (float& x : numbers) x = rng_.OneIn(2) ? 0.5f : -0.25f;
      WriteValue(layout, numbers.data(), row);
      WriteState(layout, states.data(), row);
      WriteValue(wide, numbers.data(), wide_row);
      WriteState(wide, states.data(), wide_row);
      const auto sums = rng_.Floats(dim);
      const StepConstants c = MakeStepConstants(rule, {0.05f, 0.01f, 0.5f, 1});
      kernels_->RowsOf(value, state).step(c, dim, &row, sums.data(), 1);
      base_->RowsOf(NumberType::kFloat32, NumberType::kFloat32)
          .step(c, dim, &wide_row, sums.data(), 1);
      std::vector<float> after(dim), expected_after(dim);
      ReadValue(layout, row, after.data());
      ReadValue(wide, wide_row, expected_after.data());
      for (int j = 0; j < dim; ++j) {
        ASSERT_NEAR(after[j], expected_after[j], 0x1p-8 * std::fabs(expected_after[j]) + 1e-6)
            << static_cast<int>(rule.kind) << NameOf(value) << NameOf(state) << dim;
      }
    });
  }
}

TEST_P(NarrowKernelsTest, ReadsNoPointerPastEitherEndOfTheRows) {
  constexpr int kWidth = 8;
  Rule rule;
  rule.kind = RuleKind::kSgd;
  const RowLayout layout = LayoutOf(rule, kWidth, NumberType::kBfloat16, NumberType::kFloat32);
  const StepConstants c = MakeStepConstants(rule, {0.05f, 0.01f, 0.5f, 1});
  Rows rows(layout, 20, &rng_);
  const auto sums = rng_.Floats(20 * kWidth);
  for (const bool at_end : {false, true}) {
    const GuardedPointers<char> guarded(rows.rows, at_end);
    kernels_->RowsOf(NumberType::kBfloat16, NumberType::kFloat32)
        .step(c, kWidth, guarded.data(), sums.data(), 20);
  }
}

// The random numbers of a row, as rounding.h describes them.
class Random {
 public:
  Random(uint64_t stream_of_step, int64_t key)
      : stream_(Mix64(stream_of_step ^ Mix64(static_cast<uint64_t>(key) ^ kRoundingKey))) {}

  uint32_t OfValue(int i) const { return Number(i, 0); }
  // Random bits, in the upper half, that round element i of state k.
  uint32_t OfState(int i, int k) const {
    const uint32_t number = Number(i, (k + 1) / 2);
    return k % 2 == 1 ? number : number << 16;
  }

 private:
  uint32_t Number(int i, int plane) const {
    uint32_t x = static_cast<uint32_t>(stream_) + static_cast<uint32_t>(i) * 0x9e3779b9u;
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x += static_cast<uint32_t>(stream_ >> 32);
    x *= 0x846ca68bu;
    x ^= x >> 16;
    if (plane == 0) return x;
    x *= 0x9e3779b1u;
    return x ^ x >> 15;
  }

  const uint64_t stream_;
};

float Round(NumberType type, float x, bool stochastic, uint32_t random) {
  switch (type) {
    case NumberType::kBfloat16:
      return FromBfloat16(stochastic ? ToBfloat16(x, random) : ToBfloat16(x));
    case NumberType::kFloat16:
      return FromFloat16(stochastic ? ToFloat16(x, random) : ToFloat16(x));
    default:
      return x;
  }
}

// A step gives the numbers of rows of four bytes, rounded. Rows of another version or instruction
// set are rounded by the same random numbers.
TEST_P(NarrowKernelsTest, StepsAsRowsOfFourBytesThatAreRounded) {
  constexpr size_t kRows = 3;
  for (const Rule& rule : EveryRule()) {
    ForEach([&](NumberType value, NumberType state, int dim) {
      const RowLayout layout = LayoutOf(rule, dim, value, state);
      const RowLayout wide = LayoutOf(rule, dim, NumberType::kFloat32, NumberType::kFloat32);
      const int width = layout.state_width;
      for (const bool stochastic : {false, true}) {
        std::vector<char> memory(kRows * layout.stride()), wide_memory(kRows * wide.stride());
        std::vector<char*> rows, wide_rows;
        for (size_t i = 0; i < kRows; ++i) {
          rows.push_back(memory.data() + i * layout.stride());
          wide_rows.push_back(wide_memory.data() + i * wide.stride());
          Meta(rows[i])->key = Meta(wide_rows[i])->key = static_cast<int64_t>(rng_.Bits());
          WriteValue(layout, rng_.Floats(dim).data(), rows[i]);
          WriteState(layout, rng_.Floats(width, 0.5f, 1.0f).data(), rows[i]);
          std::vector<float> numbers(dim), states(width);
          ReadValue(layout, rows[i], numbers.data());
          ReadState(layout, rows[i], states.data());
          WriteValue(wide, numbers.data(), wide_rows[i]);
          WriteState(wide, states.data(), wide_rows[i]);
        }
        const auto sums = rng_.Floats(kRows * dim);
        StepConstants c = MakeStepConstants(rule, {0.05f, 0.5f, 0.5f, 1});
        c.rounding = {stochastic, RoundingStream(99, 1)};
        kernels_->RowsOf(value, state).step(c, dim, rows.data(), sums.data(), kRows);
        base_->RowsOf(NumberType::kFloat32, NumberType::kFloat32)
            .step(c, dim, wide_rows.data(), sums.data(), kRows);
        for (size_t i = 0; i < kRows; ++i) {
          const Random random(c.rounding.stream, Meta(rows[i])->key);
          std::vector<float> after(dim + width), expected(dim + width);
          ReadValue(layout, rows[i], after.data());
          ReadState(layout, rows[i], after.data() + dim);
          ReadValue(wide, wide_rows[i], expected.data());
          ReadState(wide, wide_rows[i], expected.data() + dim);
          for (int j = 0; j < dim + width; ++j) {
            const bool in_value = j < dim;
            const int element = j % dim;
            const uint32_t number =
                in_value ? random.OfValue(element) : random.OfState(element, (j - dim) / dim);
            ASSERT_EQ(after[j], Round(in_value ? value : state, expected[j], stochastic, number))
                << static_cast<int>(rule.kind) << NameOf(value) << NameOf(state) << dim << ' ' << j;
          }
        }
      }
    });
  }
}

// 10^7 numbers in all are written back, over keys, steps and elements.
TEST_P(NarrowKernelsTest, StochasticRoundingLeavesTheMeanWhereItIs) {
  const int dim = 40;
  const size_t n = 2500;
  Rule rule;
  rule.kind = RuleKind::kSgd;
  for (const NumberType value : {NumberType::kBfloat16, NumberType::kFloat16}) {
    const RowLayout layout = LayoutOf(rule, dim, value, NumberType::kFloat32);
    Rows rows(layout, n, &rng_);
    const std::vector<float> ones(dim, 1.0f);
    double error = 0.0, variance = 0.0;
    for (int step = 0; step < 120; ++step) {
      const auto sums = rng_.Floats(n * dim);
      for (char* row : rows.rows) {
        if (row != nullptr) WriteValue(layout, ones.data(), row);
      }
      StepConstants c = MakeStepConstants(rule, {0.01f, 0.0f, 1.0f, 1});
      c.rounding = {true, RoundingStream(99, step)};
      kernels_->RowsOf(value, NumberType::kFloat32).step(c, dim, rows.rows.data(), sums.data(), n);
      for (size_t i = 0; i < n; ++i) {
        if (rows.rows[i] == nullptr) continue;
        float after[dim];
        ReadValue(layout, rows.rows[i], after);
        for (int j = 0; j < dim; ++j) {
          const float exact = 1.0f - 0.01f * sums[i * dim + j];
          // Of neighbours; those below 1 are closer.
          const double width =
              std::ldexp(exact < 1.0f ? 0.5 : 1.0, value == NumberType::kBfloat16 ? -7 : -10);
          const double p = std::fmod(exact, width) / width;
          error += (static_cast<double>(after[j]) - exact) / width;
          variance += p * (1.0 - p);
        }
      }
    }
    EXPECT_LT(std::fabs(error), 4.0 * std::sqrt(variance)) << NameOf(value);
    EXPECT_GT(variance, 1e5);
  }
}

}  // namespace
}  // namespace msrec
