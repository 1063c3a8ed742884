// SPDX-License-Identifier: Apache-2.0
//
// Loops over pairs and mixtures against sums in double precision, the same bits by all instruction
// sets; their layers, where a value is read by several.
#include "dense/pair_layers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "dense/elementwise.h"
#include "dense/mixture_layer.h"
#include "dense/program.h"
#include "dense/softmax_layer.h"

namespace msrec {
namespace {

std::vector<float> Random(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(count));
  for (float& value : x) value = normal(generator);
  return x;
}

Block BlockOf(std::vector<float>& x, int64_t ld) { return {x.data(), ld}; }

std::vector<const Elementwise*> Sets() {
  std::vector<const Elementwise*> sets;
  for (const char* name : {"base", "avx2", "avx512"}) {
    if (const Elementwise* set = FindElementwise(name)) sets.push_back(set);
  }
  return sets;
}

void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), sizeof(float) * a.size()), 0);
}

void ExpectNear(const std::vector<double>& expected, const std::vector<float>& got) {
  ASSERT_EQ(expected.size(), got.size());
  double largest = 1e-30;
  for (double value : expected) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(expected[i], got[i], 1e-5 * largest) << i;
}

// The products of a row's vectors, and their gradient, written as the formula is.
struct Pairs {
  int64_t rows, vectors, dim;
  bool diagonal;

  int64_t count() const { return vectors * (vectors + (diagonal ? 1 : -1)) / 2; }

  template <typename F>
  void ForEach(const F& f) const {
    for (int64_t r = 0; r < rows; ++r) {
      int64_t at = r * count();
      for (int64_t i = 0; i < vectors; ++i) {
        for (int64_t j = 0; j < i + (diagonal ? 1 : 0); ++j, ++at) {
          f(at, (r * vectors + i) * dim, (r * vectors + j) * dim);
        }
      }
    }
  }
};

struct Results {
  std::vector<float> output, gradient, added;
};

Results RunPairs(const Elementwise& set, const Pairs& pairs, std::vector<float> x,
                 std::vector<float> slopes) {
  const int64_t width = pairs.vectors * pairs.dim;
  // Rows one float further apart, and no more memory than the contract says.
  std::vector<float> forward(static_cast<size_t>(PairScratch::Forward(pairs.vectors, pairs.dim)));
  std::vector<float> backward(static_cast<size_t>(PairScratch::Backward(pairs.vectors)));
  Results results;
  results.output.resize(static_cast<size_t>(pairs.rows * pairs.count()));
  results.gradient.resize(x.size());
  results.added.assign(x.size(), 1.0f);
  set.pair_dots(pairs.rows, pairs.vectors, pairs.dim, pairs.diagonal, BlockOf(x, width),
                forward.data(), BlockOf(results.output, pairs.count()));
  for (const bool adds : {false, true}) {
    set.pair_dots_gradient(pairs.rows, pairs.vectors, pairs.dim, pairs.diagonal, BlockOf(x, width),
                           BlockOf(slopes, pairs.count()), backward.data(), adds,
                           BlockOf(adds ? results.added : results.gradient, width));
  }
  return results;
}

TEST(PairLoops, DotsAndGradientsOfAllShapes) {
  for (int64_t vectors : {1, 2, 3, 4, 5, 8, 9, 13, 16, 17, 27, 33, 40}) {
    for (int64_t dim : {1, 2, 4, 7, 8, 10, 16, 33}) {
      for (const bool diagonal : {false, true}) {
        const Pairs pairs{3, vectors, dim, diagonal};
        if (pairs.count() == 0) continue;
        const auto x = Random(pairs.rows * vectors * dim, 1);
        const auto slopes = Random(pairs.rows * pairs.count(), 2);
        std::vector<double> output(slopes.size()), gradient(x.size());
        pairs.ForEach([&](int64_t at, int64_t left, int64_t right) {
          for (int64_t d = 0; d < dim; ++d) {
            output[at] += static_cast<double>(x[left + d]) * x[right + d];
            gradient[left + d] += static_cast<double>(slopes[at]) * x[right + d];
            gradient[right + d] += static_cast<double>(slopes[at]) * x[left + d];
          }
        });
        const Results first = RunPairs(*Sets()[0], pairs, x, slopes);
        ExpectNear(output, first.output);
        ExpectNear(gradient, first.gradient);
        for (double& value : gradient) value += 1;
        ExpectNear(gradient, first.added);
        for (const Elementwise* set : Sets()) {
          const Results other = RunPairs(*set, pairs, x, slopes);
          ExpectSameBits(first.output, other.output);
          ExpectSameBits(first.gradient, other.gradient);
          ExpectSameBits(first.added, other.added);
        }
      }
    }
  }
}

TEST(PairLoops, SumsOverPairsOfFields) {
  for (int64_t fields : {2, 3, 39}) {
    for (int64_t dim : {1, 3, 4, 8, 10, 16, 31, 50}) {
      const Pairs pairs{4, fields, dim, false};
      auto x = Random(pairs.rows * fields * dim, 3);
      auto slopes = Random(pairs.rows * dim, 4);
      std::vector<double> output(slopes.size()), gradient(x.size());
      pairs.ForEach([&](int64_t at, int64_t left, int64_t right) {
        const int64_t row = at / pairs.count() * dim;
        for (int64_t d = 0; d < dim; ++d) {
          output[row + d] += static_cast<double>(x[left + d]) * x[right + d];
          gradient[left + d] += static_cast<double>(slopes[row + d]) * x[right + d];
          gradient[right + d] += static_cast<double>(slopes[row + d]) * x[left + d];
        }
      });
      std::vector<float> first_output, first_gradient, first_sums;
      for (const Elementwise* set : Sets()) {
        std::vector<float> got(output.size()), of_x(x.size()), sums(4);
        set->pair_sums(4, fields, dim, BlockOf(x, fields * dim), BlockOf(got, dim));
        set->pair_sums_gradient(4, fields, dim, BlockOf(x, fields * dim), BlockOf(slopes, dim),
                                false, BlockOf(of_x, fields * dim));
        set->row_sums(4, dim, BlockOf(got, dim), BlockOf(sums, 1));
        ExpectNear(output, got);
        ExpectNear(gradient, of_x);
        for (int64_t r = 0; r < 4; ++r) {
          double sum = 0;
          for (int64_t d = 0; d < dim; ++d) sum += got[r * dim + d];
          EXPECT_NEAR(sum, sums[r], 1e-3);
        }
        if (set == Sets()[0]) {
          first_output = got, first_gradient = of_x, first_sums = sums;
        }
        ExpectSameBits(first_output, got);
        ExpectSameBits(first_gradient, of_x);
        ExpectSameBits(first_sums, sums);
      }
    }
  }
}

TEST(MixtureLoops, MixturesAndGradientsOfAllShapes) {
  for (int64_t tasks : {1, 2, 5}) {
    for (int64_t experts : {1, 3, 4, 9}) {
      for (int64_t width : {1, 5, 16, 23, 64}) {
        const MixtureShape shape{tasks, experts, width};
        constexpr int64_t kRows = 3;
        auto units = Random(kRows * experts * width, 5);
        auto gates = Random(kRows * tasks * experts, 6);
        auto slopes = Random(kRows * tasks * width, 7);
        std::vector<double> output(slopes.size()), of_units(units.size()), of_gates(gates.size());
        for (int64_t r = 0; r < kRows; ++r) {
          for (int64_t k = 0; k < tasks; ++k) {
            for (int64_t e = 0; e < experts; ++e) {
              for (int64_t j = 0; j < width; ++j) {
                const int64_t unit = (r * experts + e) * width + j;
                const int64_t gate = (r * tasks + k) * experts + e;
                const int64_t out = (r * tasks + k) * width + j;
                output[out] += static_cast<double>(gates[gate]) * units[unit];
                of_units[unit] += static_cast<double>(gates[gate]) * slopes[out];
                of_gates[gate] += static_cast<double>(units[unit]) * slopes[out];
              }
            }
          }
        }
        std::vector<std::vector<float>> first;
        for (const Elementwise* set : Sets()) {
          std::vector<float> y(output.size()), du(units.size()), dg(gates.size());
          const Block u = BlockOf(units, experts * width);
          const Block g = BlockOf(gates, tasks * experts);
          const Block dy = BlockOf(slopes, tasks * width);
          set->mix(kRows, shape, u, g, BlockOf(y, tasks * width));
          set->mix_units_gradient(kRows, shape, g, dy, false, BlockOf(du, experts * width));
          set->mix_gates_gradient(kRows, shape, u, dy, false, BlockOf(dg, tasks * experts));
          ExpectNear(output, y);
          ExpectNear(of_units, du);
          ExpectNear(of_gates, dg);
          if (first.empty()) first = {y, du, dg};
          ExpectSameBits(first[0], y);
          ExpectSameBits(first[1], du);
          ExpectSameBits(first[2], dg);
        }
      }
    }
  }
}

// ---------------------------------------------------------------- layers

constexpr int64_t kBatch = 100;

// Runs a program without parameters, on one input.
Results RunProgram(const DenseProgram& program, const std::vector<float>& x,
                   const std::vector<float>& slopes) {
  const int64_t rows = SliceRows(kBatch);
  const int64_t padded = (kBatch + rows - 1) / rows * rows;
  std::vector<float> saved(static_cast<size_t>(padded * program.saved_width()));
  std::vector<float> gradients(static_cast<size_t>(padded * program.gradient_width()));
  Results results;
  results.output.resize(slopes.size());
  results.gradient.resize(x.size());
  BatchRun run;
  run.batch = kBatch;
  run.training = true;
  run.saved = saved.data();
  run.gradients = gradients.data();
  program.Forward(&run, {x.data()}, {results.output.data()});
  BatchRun back;
  back.batch = kBatch;
  back.saved = saved.data();
  back.gradients = gradients.data();
  program.Backward(&back, {slopes.data()}, {results.gradient.data()});
  return results;
}

// Sum of the outputs, weighed.
double Score(const DenseProgram& program, const std::vector<float>& x,
             const std::vector<float>& slopes) {
  const Results results = RunProgram(program, x, slopes);
  double score = 0;
  for (size_t i = 0; i < slopes.size(); ++i) {
    score += static_cast<double>(results.output[i]) * slopes[i];
  }
  return score;
}

// Compares gradients with central differences along random directions.
void ExpectSlopes(const DenseProgram& program, int64_t in, int64_t out) {
  const auto x = Random(kBatch * in, 8);
  const auto slopes = Random(kBatch * out, 9);
  const Results results = RunProgram(program, x, slopes);
  for (uint32_t seed = 20; seed < 25; ++seed) {
    const auto direction = Random(kBatch * in, seed);
    std::vector<float> ahead = x, behind = x;
    double expected = 0, size = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      ahead[i] += 1e-3f * direction[i];
      behind[i] -= 1e-3f * direction[i];
      const double term = static_cast<double>(direction[i]) * results.gradient[i];
      expected += term;
      size += term * term;
    }
    const double slope = (Score(program, ahead, slopes) - Score(program, behind, slopes)) / 2e-3;
    EXPECT_NEAR(slope, expected, 0.01 * std::sqrt(size));
  }
}

TEST(PairLayers, GradientsOfAnInputThatSeveralLayersReadAreAdded) {
  DenseProgram program(Precision::kFloat32);
  const View x = program.Whole(program.AddValue(5 * 6));
  program.AddInput(x);
  const View y = program.Whole(program.AddValue(16 + 1 + 6));
  program.AddLayer(std::make_unique<PairwiseDots>(x, View{y.value, 0, 16}, 5, false, true));
  program.AddLayer(std::make_unique<FactorizedPairs>(x, View{y.value, 16, 1}, 5, true));
  program.AddLayer(std::make_unique<FactorizedPairs>(x, View{y.value, 17, 6}, 5, false));
  program.AddOutput(y);
  program.Finish(0, 0);
  ExpectSlopes(program, 30, 23);
}

TEST(MixtureLayer, GradientsReachUnitsAndGates) {
  DenseProgram program(Precision::kFloat32);
  const View x = program.Whole(program.AddValue(3 * 4 + 2 * 3));
  program.AddInput(x);
  const View gates = program.Whole(program.AddValue(6));
  const View y = program.Whole(program.AddValue(8));
  program.AddLayer(std::make_unique<Softmax>(View{x.value, 12, 6}, gates, 3));
  program.AddLayer(std::make_unique<Mixture>(View{x.value, 0, 12}, gates, y, 3, 2));
  program.AddOutput(y);
  program.Finish(0, 0);
  ExpectSlopes(program, 18, 8);
}

TEST(PairLayers, WidthsThatDoNotFitAreRefused) {
  const auto view = [](int64_t width) { return View{0, 0, width}; };
  EXPECT_THROW(PairwiseDots(view(10), view(3), 3, false, false), std::invalid_argument);
  EXPECT_THROW(PairwiseDots(view(9), view(4), 3, false, false), std::invalid_argument);
  EXPECT_THROW(PairwiseDots(view(9), view(1), 0, false, false), std::invalid_argument);
  EXPECT_THROW(PairwiseDots(view(9), view(0), 1, false, false), std::invalid_argument);
  EXPECT_THROW(FactorizedPairs(view(9), view(2), 3, false), std::invalid_argument);
  EXPECT_THROW(FactorizedPairs(view(9), view(3), 3, true), std::invalid_argument);
  EXPECT_THROW(Mixture(view(9), view(6), view(5), 3, 2), std::invalid_argument);
  EXPECT_THROW(Mixture(view(9), view(5), view(6), 3, 2), std::invalid_argument);
  EXPECT_THROW(Mixture(view(9), view(6), view(6), 0, 2), std::invalid_argument);
  EXPECT_THROW(Softmax(view(9), view(8), 3), std::invalid_argument);
  EXPECT_THROW(Softmax(view(9), view(9), 2), std::invalid_argument);
}

}  // namespace
}  // namespace msrec
