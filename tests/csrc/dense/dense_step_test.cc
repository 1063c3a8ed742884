// SPDX-License-Identifier: Apache-2.0
//
// The step of dense parameters: the bits of a table's rows, whatever the instruction set, the sizes
// and the number of threads.
#include "dense/dense_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "float_rows.h"
#include "rows/step_constants.h"
#include "rules.h"
#include "testing.h"

namespace msrec {
namespace {

// Parameters with random values and states, in one order for every number of threads.
struct Model {
  Model(const std::vector<size_t>& sizes, const Rule& rule, uint64_t seed) {
    Rng rng(seed);
    for (const size_t n : sizes) {
      weights.push_back(rng.Floats(n));
      gradients.push_back(rng.Floats(n));
      for (int k = 0; k < 3; ++k) states[k].push_back(rng.Floats(n, 0.0f, 1.0f));
      inputs.push_back({rng.Float(0.01f, 0.1f), rng.OneIn(2) ? 0.0f : 0.03f, 0.5f, 3});
    }
    used = DenseStates(rule);
  }
  std::vector<DenseParameter> Parameters() {
    std::vector<DenseParameter> parameters;
    for (size_t j = 0; j < weights.size(); ++j) {
      DenseParameter p{weights[j].size(), weights[j].data(), gradients[j].data(), {}, inputs[j]};
      for (int k = 0; k < used; ++k) p.states[k] = states[k][j].data();
      parameters.push_back(p);
    }
    return parameters;
  }
  bool SameAs(const Model& other) const {
    for (size_t j = 0; j < weights.size(); ++j) {
      if (!SameBits(weights[j], other.weights[j])) return false;
      for (int k = 0; k < 3; ++k) {
        if (!SameBits(states[k][j], other.states[k][j])) return false;
      }
    }
    return true;
  }

  int used = 0;
  std::vector<std::vector<float>> weights, gradients, states[3];
  std::vector<StepInput> inputs;
};

class DenseStepTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    kernels_ = FindKernels(GetParam());
    if (kernels_ == nullptr) GTEST_SKIP() << "not on this CPU";
  }
  const Kernels* kernels_ = nullptr;
  const Kernels* base_ = FindKernels("base");
  Rng rng_{7};
};
INSTANTIATE_TEST_SUITE_P(Sets, DenseStepTest, ::testing::Values("base", "avx2", "avx512"));

TEST_P(DenseStepTest, HasTheBitsOfATablesRow) {
  ThreadPool pool(2);
  for (const Rule& rule : EveryRule()) {
    Rule row_rule = rule;
    // A dense parameter has an accumulator for each element.
    if (rule.kind == RuleKind::kRowWiseAdagrad) row_rule.kind = RuleKind::kAdagrad;
    for (const size_t n : {1, 7, 16, 33, 40000}) {
      Model model({n}, rule, n);
      std::vector<char> memory(sizeof(RowMeta) + n * (1 + model.used) * sizeof(float));
      char* row = memory.data();
      std::copy(model.weights[0].begin(), model.weights[0].end(), Value(row));
      for (int k = 0; k < model.used; ++k) {
        std::copy(model.states[k][0].begin(), model.states[k][0].end(), Value(row) + (k + 1) * n);
      }
      base_->rows[0][0].step(MakeStepConstants(row_rule, model.inputs[0]), static_cast<int>(n),
                             &row, model.gradients[0].data(), 1);
      StepDense(*kernels_, rule, model.Parameters(), &pool);
      ASSERT_TRUE(SameBits(model.weights[0].data(), Value(row), n)) << static_cast<int>(rule.kind);
      for (int k = 0; k < model.used; ++k) {
        ASSERT_TRUE(SameBits(model.states[k][0].data(), Value(row) + (k + 1) * n, n)) << k;
      }
    }
  }
}

TEST_P(DenseStepTest, HasTheSameBitsForAnyNumberOfThreads) {
  ThreadPool one(1);
  for (const Rule& rule : EveryRule()) {
    for (size_t trial = 0; trial * kFewer < 3; ++trial) {
      std::vector<size_t> sizes = {0, 1, 16384, 16385};
      for (int i = 0; i < 8; ++i) sizes.push_back(rng_.Below(rng_.OneIn(3) ? 100000 / kFewer : 50));
      const uint64_t seed = rng_.Bits();
      Model expected(sizes, rule, seed);
      StepDense(*base_, rule, expected.Parameters(), &one);
      for (const int threads : {1, 2, 7}) {
        ThreadPool pool(threads);
        Model got(sizes, rule, seed);
        StepDense(*kernels_, rule, got.Parameters(), &pool);
        ASSERT_TRUE(got.SameAs(expected)) << static_cast<int>(rule.kind) << " " << threads;
      }
    }
  }
}

TEST_P(DenseStepTest, SumOfSquaresIsRightAndFixed) {
  ThreadPool one(1), seven(7);
  for (const size_t n :
       {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{17}, size_t{100003}}) {
    const auto a = rng_.Floats(n, -3.0f, 3.0f), b = rng_.Floats(n / 2);
    const std::vector<FloatSpan> spans = {{a.data(), a.size()}, {nullptr, 0}, {b.data(), b.size()}};
    double expected = 0.0;
    for (const auto& each : {a, b}) {
      for (const double x : each) expected += x * x;
    }
    const double got = SumOfSquares(*kernels_, spans, &one);
    ASSERT_NEAR(got, expected, 1e-12 * expected) << n;
    ASSERT_EQ(got, SumOfSquares(*base_, spans, &seven)) << n;
  }
  ASSERT_EQ(SumOfSquares(*kernels_, {}, &one), 0.0);
}

// The gradient of the product of two weights is the other weight: MindSpore hands on its memory.
TEST_P(DenseStepTest, AGradientMayLieInAParameter) {
  ThreadPool pool(2);
  Rule rule;
  rule.kind = RuleKind::kSgd;
  const size_t n = 50000;
  auto a = rng_.Floats(n), b = rng_.Floats(n), c = rng_.Floats(n);
  const auto a0 = a, b0 = b, c0 = c;
  StepInput input;
  input.learning_rate = 0.5f;
  std::vector<DenseParameter> parameters = {{n, a.data(), b.data(), {}, input},
                                            {n, b.data(), a.data(), {}, input},
                                            {n - 3, c.data() + 3, c.data(), {}, input}};
  StepDense(*kernels_, rule, parameters, &pool);
  for (size_t i = 0; i < n; ++i) {
    ASSERT_EQ(a[i], a0[i] - 0.5f * b0[i]) << i;
    ASSERT_EQ(b[i], b0[i] - 0.5f * a0[i]) << i;
    ASSERT_EQ(c[i], i < 3 ? c0[i] : c0[i] - 0.5f * c0[i - 3]) << i;
  }
}

TEST_P(DenseStepTest, NotFiniteNumbersStayWhereTheyAre) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  ThreadPool pool(1);
  for (const Rule& rule : EveryRule()) {
    if (rule.kind == RuleKind::kFtrl) continue;  // its weights are a function of the state
    Model model({40, 40}, rule, 9), finite({40, 40}, rule, 9);
    for (Model* each : {&model, &finite}) {
      each->inputs[0].weight_decay = each->inputs[1].weight_decay = 0.0f;
    }
    model.weights[0][3] = -kInf;
    model.gradients[0][5] = NAN;
    model.gradients[0][6] = kInf;
    StepDense(*kernels_, rule, model.Parameters(), &pool);
    StepDense(*kernels_, rule, finite.Parameters(), &pool);
    EXPECT_EQ(model.weights[0][3], -kInf);
    EXPECT_TRUE(std::isnan(model.weights[0][5]));
    EXPECT_FALSE(std::isfinite(model.weights[0][6]));
    for (const size_t i : {0, 1, 2, 4, 7, 39}) {
      EXPECT_EQ(model.weights[0][i], finite.weights[0][i]);
    }
    EXPECT_TRUE(SameBits(model.weights[1], finite.weights[1]));
  }
}

}  // namespace
}  // namespace msrec
