// SPDX-License-Identifier: Apache-2.0
//
// The row kernels: each set's bits against the base set's, and each rule against its published
// formula in double precision.
#include "rows/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "float_rows.h"
#include "guarded.h"
#include "rows/step_constants.h"
#include "rules.h"
#include "testing.h"

namespace msrec {
namespace {

const std::vector<int>& Dims() {
  static const std::vector<int> dims = {1, 2, 3, 4, 7, 8, 15, 16, 17, 32, 33, 64, 100, 257};
  return dims;
}

// Rows of random contents, some of them absent.
class RowsOf {
 public:
  RowsOf(size_t n, size_t floats, Rng* rng, bool with_absent = true)
      : stride_(sizeof(RowMeta) + floats * sizeof(float)), memory_(n * stride_ + 64) {
    for (size_t i = 0; i < n; ++i) {
      char* row = memory_.data() + 4 + i * stride_;  // rows are 4-byte aligned and no more
      for (size_t j = 0; j < floats; ++j) Value(row)[j] = rng->Float(0.0f, 1.0f);
      rows_.push_back(with_absent && rng->OneIn(5) ? nullptr : row);
    }
  }
  RowsOf(const RowsOf& other) : stride_(other.stride_), memory_(other.memory_) {
    for (char* row : other.rows_) {
      rows_.push_back(row == nullptr ? nullptr : memory_.data() + (row - other.memory_.data()));
    }
  }
  char* const* rows() const { return rows_.data(); }
  const std::vector<char>& memory() const { return memory_; }

 private:
  size_t stride_;
  std::vector<char> memory_;
  std::vector<char*> rows_;
};

StepConstants Constants(const Rule& rule, const StepInput& in) {
  return {rule, in, in.learning_rate * 0.9f, rule.epsilon, 2.0f * rule.l2};
}

class KernelsTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    kernels_ = FindKernels(GetParam());
    if (kernels_ == nullptr) GTEST_SKIP() << "not on this CPU";
    EXPECT_STREQ(kernels_->name, GetParam());
  }
  const Kernels* kernels_ = nullptr;
  const Kernels* base_ = FindKernels("base");
  Rng rng_{5};
};
INSTANTIATE_TEST_SUITE_P(Sets, KernelsTest, ::testing::Values("base", "avx2", "avx512"));

TEST_P(KernelsTest, GatherCopiesRowsToTheirPositions) {
  for (const int dim : Dims()) {
    const size_t n = 300, distinct = 40;
    const RowsOf rows(distinct, dim, &rng_);
    const auto default_row = rng_.Floats(dim);
    std::vector<uint32_t> inverse(n), pos(n);
    for (size_t i = 0; i < n; ++i) {
      inverse[i] = static_cast<uint32_t>(rng_.Below(distinct));
      pos[i] = static_cast<uint32_t>((i * 7) % n);
    }
    std::vector<float> out(n * dim, -7.0f), expected(n * dim);
    kernels_->rows[0][0].gather(rows.rows(), inverse.data(), pos.data(), n, default_row.data(), dim,
                                out.data());
    for (size_t i = 0; i < n; ++i) {
      const char* row = rows.rows()[inverse[i]];
      std::memcpy(&expected[pos[i] * dim], row != nullptr ? Value(row) : default_row.data(),
                  dim * sizeof(float));
    }
    ASSERT_TRUE(SameBits(out, expected)) << dim;
  }
}

TEST_P(KernelsTest, AccumulateAddsInOrder) {
  for (const int dim : Dims()) {
    for (const int variant : {0, 1, 2, 3}) {
      const size_t n = 500, slots = 30, sources = 77;
      std::vector<uint32_t> slot(n), pos(n), source(n);
      for (size_t i = 0; i < n; ++i) {
        slot[i] = static_cast<uint32_t>(rng_.Below(slots));
        pos[i] = static_cast<uint32_t>(i);
        source[i] = static_cast<uint32_t>(rng_.Below(sources));
      }
      const auto grad = rng_.Floats(n * dim);
      const auto scale = rng_.Floats(n);
      const bool has_source = variant % 2 != 0, has_scale = variant / 2 != 0;
      auto sums = rng_.Floats(slots * dim), expected = sums;
      kernels_->accumulate(slot.data(), pos.data(), n, grad.data(),
                           has_source ? source.data() : nullptr, has_scale ? scale.data() : nullptr,
                           dim, sums.data());
      for (size_t i = 0; i < n; ++i) {
        const size_t from = has_source ? source[pos[i]] : pos[i];
        for (int j = 0; j < dim; ++j) {
          const float g = grad[from * dim + j];
          expected[slot[i] * dim + j] += has_scale ? scale[pos[i]] * g : g;
        }
      }
      ASSERT_TRUE(SameBits(sums, expected)) << dim << " " << variant;
    }
  }
}

TEST_P(KernelsTest, PoolAddsInOrder) {
  for (const int dim : Dims()) {
    for (const size_t n : {0, 1, 2, 50}) {
      const RowsOf rows(20, dim, &rng_);
      const auto default_row = rng_.Floats(dim), weight = rng_.Floats(n);
      std::vector<uint32_t> index(n);
      for (auto& i : index) i = static_cast<uint32_t>(rng_.Below(20));
      for (const bool weighted : {false, true}) {
        const float scale = rng_.Float(0.1f, 3.0f);
        std::vector<float> out(dim, NAN), expected(dim);
        kernels_->rows[0][0].pool(rows.rows(), index.data(), weighted ? weight.data() : nullptr, n,
                                  default_row.data(), scale, dim, out.data());
        for (int j = 0; j < dim; ++j) {
          for (size_t i = 0; i < n; ++i) {
            const char* row = rows.rows()[index[i]];
            expected[j] +=
                (weighted ? weight[i] : 1.0f) * (row != nullptr ? Value(row)[j] : default_row[j]);
          }
          expected[j] *= scale;
        }
        ASSERT_TRUE(SameBits(out, expected)) << dim << " " << n;
      }
    }
  }
}

TEST_P(KernelsTest, SquaredNormIsTheBasesAndRight) {
  for (const int dim : Dims()) {
    const RowsOf rows(60, dim, &rng_);
    const auto sums = rng_.Floats(60 * dim, -3.0f, 3.0f);
    double expected = 0.0;
    for (int i = 0; i < 60; ++i) {
      for (int j = 0; j < dim && rows.rows()[i] != nullptr; ++j) {
        expected += static_cast<double>(sums[i * dim + j]) * sums[i * dim + j];
      }
    }
    const double norm = kernels_->squared_norm(dim, rows.rows(), sums.data(), 60);
    ASSERT_EQ(norm, base_->squared_norm(dim, rows.rows(), sums.data(), 60));
    ASSERT_NEAR(norm, expected, 1e-12 * expected);
  }
}

TEST_P(KernelsTest, StepHasTheBasesBits) {
  for (const Rule& rule : EveryRule()) {
    for (const int dim : Dims()) {
      const RowsOf before(37, dim + rule.StateWidth(dim), &rng_);
      RowsOf here(before), there(before);
      for (int step = 1; step <= 3; ++step) {
        const auto sums = rng_.Floats(37 * dim);
        const StepConstants c = Constants(rule, {0.05f, 0.01f, 0.5f, step});
        kernels_->rows[0][0].step(c, dim, here.rows(), sums.data(), 37);
        base_->rows[0][0].step(c, dim, there.rows(), sums.data(), 37);
      }
      ASSERT_EQ(here.memory(), there.memory())
          << "rule " << static_cast<int>(rule.kind) << " dim " << dim;
      ASSERT_NE(here.memory(), before.memory());
    }
  }
}

TEST_P(KernelsTest, StepsReadNoPointerPastEitherEndOfTheRows) {
  constexpr size_t kRows = 20;
  constexpr int kWidth = 8;
  Rule rule;
  rule.kind = RuleKind::kSgd;
  const StepConstants c = Constants(rule, {0.05f, 0.01f, 0.5f, 1});
  const RowsOf rows(kRows, kWidth, &rng_, false);
  const std::vector<char*> at(rows.rows(), rows.rows() + kRows);
  auto numbers = rng_.Floats(kRows * kWidth);
  std::vector<float*> values;
  for (size_t i = 0; i < kRows; ++i) values.push_back(&numbers[i * kWidth]);
  const std::vector<int64_t> keys(kRows);
  const auto sums = rng_.Floats(kRows * kWidth);
  for (const bool at_end : {false, true}) {
    const GuardedPointers<char> guarded(at, at_end);
    kernels_->rows[0][0].step(c, kWidth, guarded.data(), sums.data(), kRows);
    const GuardedPointers<float> apart(values, at_end);
    kernels_->rows[0][0].step_apart(c, kWidth, keys.data(), apart.data(), apart.data(), sums.data(),
                                    kRows);
  }
}

// ---------------------------------------------------------------- published formulas

// One element's step: w and state in place, from its gradient (already scaled; not decayed).
struct Reference {
  double w = 0.0, s0 = 0.0, s1 = 0.0, s2 = 0.0;
};

// Runs `rule` for some steps on one row, and the same in double precision; gradients include zeros
// and a large one.
void CheckRule(const Kernels& kernels, const Rule& rule, int dim, double tolerance,
               const std::function<void(std::vector<Reference>*, const std::vector<double>& g,
                                        const StepInput& in)>& formula) {
  Rng rng(11);
  const int width = rule.StateWidth(dim);
  std::vector<char> memory(sizeof(RowMeta) + (dim + width) * sizeof(float));
  char* row = memory.data();
  std::vector<Reference> reference(dim);
  for (int j = 0; j < dim; ++j) reference[j].w = Value(row)[j] = rng.Float(-1.0f, 1.0f);
  std::fill_n(Value(row) + dim, rule.FirstAccumulators(dim), rule.initial_accumulator);
  for (int j = 0; j < dim; ++j) {
    reference[j].s0 = width == 0 ? 0.0 : Value(row)[dim + (width == 1 ? 0 : j)];
  }
  for (int step = 1; step <= 50; ++step) {
    auto raw = rng.Floats(dim);
    if (step % 7 == 0) raw[rng.Below(dim)] = 0.0f;
    if (step == 20) raw[0] = 100.0f;
    const StepInput in{0.02f + 0.001f * step, rule.kind == RuleKind::kFtrl ? 0.0f : 0.05f, 0.25f,
                       step};
    // The table's part of the constants, as Table::Step has it.
    const double c2 = std::sqrt(1.0 - std::pow(double{rule.beta2}, step));
    const double c1 = 1.0 - std::pow(double{rule.beta1}, step);
    StepConstants c{rule, in, static_cast<float>(in.learning_rate * c2 / c1), rule.epsilon,
                    2.0f * rule.l2};
    if (rule.kind == RuleKind::kAdamW) c.adam_eps = static_cast<float>(rule.epsilon * c2);
    kernels.rows[0][0].step(c, dim, &row, raw.data(), 1);
    std::vector<double> g(dim);
    for (int j = 0; j < dim; ++j) g[j] = double{in.grad_scale} * raw[j];
    formula(&reference, g, in);
    for (int j = 0; j < dim; ++j) {
      ASSERT_NEAR(Value(row)[j], reference[j].w,
                  tolerance * std::max(1.0, std::fabs(reference[j].w)))
          << kernels.name << " step " << step << " element " << j;
    }
  }
}

using References = std::vector<Reference>;
using Gradients = std::vector<double>;

class RuleTest : public KernelsTest {
 protected:
  // Element by element; g includes the coupled weight decay.
  void Check(const Rule& rule,
             const std::function<void(Reference*, double g, const StepInput&)>& element,
             double tolerance = 2e-5, bool coupled_decay = true) {
    for (const int dim : {1, 5, 16, 64}) {
      CheckRule(*kernels_, rule, dim, tolerance,
                [&](References* rows, const Gradients& g, const StepInput& in) {
                  for (size_t j = 0; j < rows->size(); ++j) {
                    Reference& r = (*rows)[j];
                    element(&r, g[j] + (coupled_decay ? in.weight_decay * r.w : 0.0), in);
                  }
                });
    }
  }
  static Rule Of(RuleKind kind) {
    Rule rule;
    rule.kind = kind;
    return rule;
  }
};
INSTANTIATE_TEST_SUITE_P(Sets, RuleTest, ::testing::Values("base", "avx2", "avx512"));

TEST_P(RuleTest, Sgd) {
  Check(Of(RuleKind::kSgd),
        [](Reference* r, double g, const StepInput& in) { r->w -= in.learning_rate * g; });
}

TEST_P(RuleTest, MomentumAndNesterov) {
  for (const bool nesterov : {false, true}) {
    Rule rule = Of(RuleKind::kMomentum);
    rule.momentum = 0.9f;
    rule.nesterov = nesterov;
    Check(rule, [&](Reference* r, double g, const StepInput& in) {
      r->s0 = rule.momentum * r->s0 + g;
      r->w -= in.learning_rate * (nesterov ? g + rule.momentum * r->s0 : r->s0);
    });
  }
}

// Duchi, Hazan and Singer 2011.
TEST_P(RuleTest, Adagrad) {
  for (const float initial : {0.0f, 0.1f}) {
    Rule rule = Of(RuleKind::kAdagrad);
    rule.initial_accumulator = initial;
    rule.epsilon = 1e-7f;
    Check(rule, [&](Reference* r, double g, const StepInput& in) {
      r->s0 += g * g;
      r->w -= in.learning_rate * g / (std::sqrt(r->s0) + rule.epsilon);
    });
  }
}

// One accumulator a row: the mean of the squares.
TEST_P(RuleTest, RowWiseAdagrad) {
  Rule rule = Of(RuleKind::kRowWiseAdagrad);
  rule.initial_accumulator = 0.1f;
  for (const int dim : {1, 5, 8, 16, 33}) {
    CheckRule(*kernels_, rule, dim, 2e-5,
              [&](References* rows, const Gradients& raw, const StepInput& in) {
                Gradients g = raw;
                double squares = 0.0;
                for (size_t j = 0; j < g.size(); ++j) {
                  g[j] += in.weight_decay * (*rows)[j].w;
                  squares += g[j] * g[j];
                }
                const double sum = (*rows)[0].s0 += squares / g.size();
                for (size_t j = 0; j < g.size(); ++j) {
                  (*rows)[j].w -= in.learning_rate * g[j] / (std::sqrt(sum) + rule.epsilon);
                }
              });
  }
}

// Kingma and Ba 2015, section 2's faster form, as MindSpore: epsilon is not corrected.
TEST_P(RuleTest, AdamAndNesterov) {
  for (const bool nesterov : {false, true}) {
    Rule rule = Of(RuleKind::kAdam);
    rule.nesterov = nesterov;
    Check(rule, [&](Reference* r, double g, const StepInput& in) {
      const double b1 = rule.beta1, b2 = rule.beta2, t = static_cast<double>(in.step);
      r->s0 = b1 * r->s0 + (1 - b1) * g;
      r->s1 = b2 * r->s1 + (1 - b2) * g * g;
      const double lr = in.learning_rate * std::sqrt(1 - std::pow(b2, t)) / (1 - std::pow(b1, t));
      const double move = nesterov ? b1 * r->s0 + (1 - b1) * g : r->s0;
      r->w -= lr * move / (std::sqrt(r->s1) + rule.epsilon);
    });
  }
}

// Loshchilov and Hutter 2019, algorithm 2.
TEST_P(RuleTest, AdamW) {
  Rule rule = Of(RuleKind::kAdamW);
  rule.epsilon = 1e-3f;  // large enough that where it is added matters
  Check(
      rule,
      [&](Reference* r, double g, const StepInput& in) {
        const double b1 = rule.beta1, b2 = rule.beta2, t = static_cast<double>(in.step);
        r->s0 = b1 * r->s0 + (1 - b1) * g;
        r->s1 = b2 * r->s1 + (1 - b2) * g * g;
        const double m = r->s0 / (1 - std::pow(b1, t));
        const double v = r->s1 / (1 - std::pow(b2, t));
        r->w = r->w - double{in.learning_rate} * in.weight_decay * r->w -
               in.learning_rate * m / (std::sqrt(v) + rule.epsilon);
      },
      2e-5, false);
}

// McMahan et al. 2013, with the power of the learning rate free.
TEST_P(RuleTest, Ftrl) {
  for (const float power : {-0.5f, -0.7f}) {
    for (const float l1 : {0.0f, 0.05f}) {
      Rule rule = Of(RuleKind::kFtrl);
      rule.initial_accumulator = 0.1f;
      rule.l1 = l1;
      rule.l2 = 0.01f;
      rule.lr_power = power;
      Check(
          rule,
          [&](Reference* r, double g, const StepInput& in) {
            const double n = r->s0 + g * g;
            const double sigma = (std::pow(n, -power) - std::pow(r->s0, -power)) / in.learning_rate;
            r->s1 += g - sigma * r->w;
            r->s0 = n;
            if (std::fabs(r->s1) <= l1) {
              r->w = 0.0;
              return;
            }
            r->w = -(r->s1 - std::copysign(l1, r->s1)) /
                   (std::pow(n, -power) / in.learning_rate + 2.0 * rule.l2);
          },
          2e-4);
    }
  }
}

// Tieleman and Hinton 2012; centered: Graves 2013. Epsilon inside the root, as MindSpore.
TEST_P(RuleTest, RmsProp) {
  for (const bool centered : {false, true}) {
    Rule rule = Of(RuleKind::kRmsProp);
    rule.momentum = 0.5f;
    rule.centered = centered;
    rule.epsilon = 1e-3f;
    Check(
        rule,
        [&](Reference* r, double g, const StepInput& in) {
          r->s0 = rule.decay * r->s0 + (1.0 - rule.decay) * g * g;
          r->s2 = rule.decay * r->s2 + (1.0 - rule.decay) * g;
          const double variance = centered ? r->s0 - r->s2 * r->s2 : r->s0;
          r->s1 = rule.momentum * r->s1 + in.learning_rate * g / std::sqrt(variance + rule.epsilon);
          r->w -= r->s1;
        },
        1e-4);
  }
}

// Whole numbers, whose sum does not depend on its order.
TEST_P(KernelsTest, SumOfSquaresIsOfAllNumbersAndNoOthers) {
  const auto floats = rng_.Floats(100, -9.0f, 9.0f);
  std::vector<float> numbers;
  for (const float x : floats) numbers.push_back(std::round(x));
  double expected = 0.0;
  for (size_t n = 0; n < numbers.size(); ++n) {
    ASSERT_EQ(kernels_->sum_of_squares(numbers.data(), n), expected) << n;
    expected += static_cast<double>(numbers[n]) * numbers[n];
  }
}

TEST(Rule, NamesAreKnownAndOthersAreRefused) {
  for (const char* name :
       {"sgd", "momentum", "adagrad", "row_wise_adagrad", "adam", "adamw", "ftrl", "rmsprop"}) {
    EXPECT_NE(ParseRuleKind(name), RuleKind::kNone);
  }
  EXPECT_THROW(ParseRuleKind("Adam"), std::invalid_argument);
  EXPECT_THROW(ParseRuleKind(""), std::invalid_argument);
}

TEST(Kernels, UnknownSetIsNull) {
  EXPECT_EQ(FindKernels("sse9"), nullptr);
  EXPECT_NE(FindKernels("base"), nullptr);
}

}  // namespace
}  // namespace msrec
