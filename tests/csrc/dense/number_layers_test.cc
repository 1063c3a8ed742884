// SPDX-License-Identifier: Apache-2.0
//
// Vectors of numbers, curves and waves: values against the formulas in double precision, gradients
// against finite differences of these formulas.
#include "dense/number_layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "dense_testing.h"
#include "testing.h"
#include "util/thread_pool.h"

namespace msrec {
namespace {

constexpr int64_t kBefore = 3;  // columns before the vectors, an input
constexpr double kPi = 3.14159265358979323846;

struct Shape {
  int64_t count, dim, each;  // numbers, floats of a vector, and bins or frequencies
};

using Doubles = std::vector<double>;
// Returns the vector of number n, whose value is x, from the parameters.
using Formula =
    std::function<Doubles(const Shape&, int64_t n, double x, const std::vector<Doubles>&)>;

Doubles Curve(const Shape& shape, int64_t n, double x, const std::vector<Doubles>& parameters) {
  const double place = (x + 1) * static_cast<double>(shape.each) / 2;
  const auto last = static_cast<double>(shape.each - 1);
  const double knot = std::clamp(std::floor(place), 0.0, last);
  const int64_t at = (n * (shape.each + 1) + static_cast<int64_t>(knot)) * shape.dim;
  Doubles made;
  for (int64_t d = 0; d < shape.dim; ++d) {
    const double below = parameters[0][at + d], above = parameters[0][at + shape.dim + d];
    made.push_back(below + (place - knot) * (above - below));
  }
  return made;
}

Doubles Wave(const Shape& shape, int64_t n, double x, const std::vector<Doubles>& parameters) {
  Doubles made;
  for (int64_t d = 0; d < shape.dim; ++d) {
    double sum = parameters[2][d];
    for (int64_t k = 0; k < shape.each; ++k) {
      const double angle = 2 * kPi * parameters[0][n * shape.each + k] * x;
      sum += parameters[1][d * 2 * shape.each + k] * std::sin(angle) +
             parameters[1][(d * 2 + 1) * shape.each + k] * std::cos(angle);
    }
    made.push_back(std::max(sum, 0.0));
  }
  return made;
}

struct Kind {
  std::string name;
  Formula formula;
  std::function<std::unique_ptr<Layer>(const View&, const View&, int64_t each)> make;
  std::function<std::vector<int64_t>(const Shape&)> parameter_sizes;
};

const std::vector<Kind>& Kinds() {
  static const std::vector<Kind> kinds = {
      {"curves", Curve,
       [](const View& x, const View& y, int64_t bins) -> std::unique_ptr<Layer> {
         return std::make_unique<CurvesOfNumbers>(x, y, bins, 0);
       },
       [](const Shape& shape) {
         return std::vector<int64_t>{shape.count * (shape.each + 1) * shape.dim};
       }},
      {"waves", Wave,
       [](const View& x, const View& y, int64_t count) -> std::unique_ptr<Layer> {
         return std::make_unique<WavesOfNumbers>(x, y, count, WaveParameters{0, 1, 2});
       },
       [](const Shape& shape) {
         return std::vector<int64_t>{shape.count * shape.each, shape.dim * 2 * shape.each,
                                     shape.dim};
       }}};
  return kinds;
}

std::unique_ptr<DenseProgram> Program(const Kind& kind, const Shape& shape) {
  auto program = std::make_unique<DenseProgram>(Precision::kFloat32);
  const int row = program->AddValue(kBefore + shape.count * shape.dim);
  const View numbers = program->Whole(program->AddValue(shape.count));
  program->AddInput({row, 0, kBefore});
  program->AddInput(numbers);
  program->AddLayer(kind.make(numbers, View{row, kBefore, shape.count * shape.dim}, shape.each));
  program->AddOutput(program->Whole(row));
  program->Finish(static_cast<int>(kind.parameter_sizes(shape).size()), 0);
  return program;
}

Tensors RandomTensors(const Kind& kind, const Shape& shape, int64_t batch, Rng* rng) {
  Tensors given;
  given.batch = batch;
  given.inputs = {rng->Floats(batch * kBefore), rng->Floats(batch * shape.count)};
  for (float& x : given.inputs[1]) x *= 1.5f;  // also beyond the knots
  for (const int64_t size : kind.parameter_sizes(shape)) {
    given.parameters.push_back(rng->Floats(size));
  }
  given.output_gradients = {rng->Floats(batch * (kBefore + shape.count * shape.dim))};
  return given;
}

// The sum of all outputs times their gradients, for numbers and parameters in double precision.
double ScoreOf(const Kind& kind, const Shape& shape, const Tensors& given, const Doubles& numbers,
               const std::vector<Doubles>& parameters) {
  double score = 0;
  const int64_t width = kBefore + shape.count * shape.dim;
  for (int64_t r = 0; r < given.batch; ++r) {
    for (int64_t n = 0; n < shape.count; ++n) {
      const Doubles vector = kind.formula(shape, n, numbers[r * shape.count + n], parameters);
      for (int64_t d = 0; d < shape.dim; ++d) {
        const int64_t at = r * width + kBefore + n * shape.dim + d;
        score += vector[d] * given.output_gradients[0][at];
      }
    }
  }
  return score;
}

// Compares a gradient with the slope of the score along a random direction.
void CheckSlope(const std::vector<float>& gradient, Doubles* moved, Rng* rng, double bound,
                const std::function<double()>& score) {
  const Doubles before = *moved;
  const std::vector<float> direction = rng->Floats(gradient.size());
  double found = 0;
  for (size_t i = 0; i < gradient.size(); ++i) {
    found += static_cast<double>(gradient[i]) * static_cast<double>(direction[i]);
  }
  double sides[2];
  constexpr double kStep = 1e-7;
  for (const int side : {0, 1}) {
    for (size_t i = 0; i < before.size(); ++i) {
      (*moved)[i] = before[i] + (side == 0 ? kStep : -kStep) * static_cast<double>(direction[i]);
    }
    sides[side] = score();
  }
  *moved = before;
  EXPECT_NEAR(found, (sides[0] - sides[1]) / (2 * kStep), bound);
}

void Check(const Kind& kind, const Shape& shape, int64_t batch, Rng* rng) {
  SCOPED_TRACE(kind.name + " " + std::to_string(shape.count) + " " + std::to_string(shape.dim) +
               " " + std::to_string(shape.each) + " " + std::to_string(batch));
  const Tensors given = RandomTensors(kind, shape, batch, rng);
  const Results found = RunProgram(*Program(kind, shape), given);
  Doubles numbers(given.inputs[1].begin(), given.inputs[1].end());
  std::vector<Doubles> parameters;
  for (const auto& each : given.parameters) parameters.emplace_back(each.begin(), each.end());
  const int64_t width = kBefore + shape.count * shape.dim;
  for (int64_t r = 0; r < batch; ++r) {
    for (int64_t n = 0; n < shape.count; ++n) {
      const Doubles vector = kind.formula(shape, n, numbers[r * shape.count + n], parameters);
      for (int64_t d = 0; d < shape.dim; ++d) {
        const float got = found.outputs[0][r * width + kBefore + n * shape.dim + d];
        ASSERT_NEAR(got, vector[d], 1e-5 * static_cast<double>(shape.each + 1));
      }
    }
  }
  if (batch == 0) return;
  const auto score = [&] { return ScoreOf(kind, shape, given, numbers, parameters); };
  // A step across a knot, or across the corner of the ReLU, changes the slope a little.
  const double size = static_cast<double>(batch * shape.count * shape.dim * shape.each);
  CheckSlope(found.input_gradients[1], &numbers, rng, 1e-4 * std::sqrt(size) + 1e-3, score);
  for (size_t i = 0; i < parameters.size(); ++i) {
    CheckSlope(found.parameter_gradients[i], &parameters[i], rng, 1e-4 * std::sqrt(size) + 1e-3,
               score);
  }
}

TEST(NumberLayersTest, AreTheirFormulas) {
  Rng rng(1);
  for (const Kind& kind : Kinds()) {
    for (const Shape& shape :
         {Shape{1, 1, 1}, Shape{3, 10, 2}, Shape{13, 8, 24}, Shape{2, 33, 7}}) {
      for (const int64_t batch : {0, 1, 5, 300}) Check(kind, shape, batch, &rng);
    }
  }
}

TEST(NumberLayersTest, NumberOfThreadsChangesNoBit) {
  Rng rng(2);
  for (const Kind& kind : Kinds()) {
    const Shape shape{13, 10, 9};
    const auto program = Program(kind, shape);
    const Tensors given = RandomTensors(kind, shape, 1000, &rng);
    const int before = ThreadPool::Global().num_threads();
    ThreadPool::Global().SetNumThreads(1);
    const Results one = RunProgram(*program, given);
    ThreadPool::Global().SetNumThreads(5);
    const Results five = RunProgram(*program, given);
    ThreadPool::Global().SetNumThreads(before);
    EXPECT_TRUE(SameResults(one, five));
  }
}

// All bits that the loops of an instruction set write.
std::vector<float> Written(const Elementwise& set, int64_t dim, int64_t each) {
  constexpr int64_t kRows = 7, kNumbers = 3;
  Rng rng(3);
  const int64_t width = kNumbers * dim;
  std::vector<float> x = rng.Floats(kRows * kNumbers), g = rng.Floats(kRows * width);
  const std::vector<float> knots = rng.Floats(kNumbers * (each + 1) * dim);
  const std::vector<float> frequencies = rng.Floats(kNumbers * each);
  const std::vector<float> weight = rng.Floats(dim * 2 * each), bias = rng.Floats(dim);
  const NumberCurves curves{kNumbers, dim, each, knots.data()};
  const NumberWaves waves{kNumbers, dim, each, frequencies.data(), weight.data(), bias.data()};
  std::vector<float> scratch(NumberWaves::Scratch(dim, each));
  std::vector<float> made;
  const auto keep = [&](const std::vector<float>& more) {
    made.insert(made.end(), more.begin(), more.end());
  };
  std::vector<float> y(kRows * width), dx(kRows * kNumbers);
  const Block of_x{x.data(), kNumbers}, of_y{y.data(), width}, of_g{g.data(), width};
  set.curves(kRows, curves, of_x, of_y);
  keep(y);
  std::vector<float> sums(knots.size());
  set.curves_gradient(kRows, curves, of_x, of_g, {{dx.data(), kNumbers}, false}, sums.data());
  keep(dx);
  keep(sums);
  set.waves(kRows, waves, of_x, scratch.data(), of_y);
  keep(y);
  sums.assign(frequencies.size() + weight.size() + bias.size(), 0.0f);
  set.waves_gradient(kRows, waves, of_x, of_y, of_g, scratch.data(), {{dx.data(), kNumbers}, true},
                     sums.data());
  keep(dx);
  keep(sums);
  return made;
}

TEST(NumberLayersTest, InstructionSetsGiveTheSameBits) {
  for (const int64_t dim : {1, 8, 19}) {
    for (const int64_t each : {1, 24, 35}) {
      const std::vector<float> base = Written(*FindElementwise("base"), dim, each);
      for (const char* name : {"avx2", "avx512"}) {
        const Elementwise* set = FindElementwise(name);
        if (set == nullptr) continue;
        const std::vector<float> other = Written(*set, dim, each);
        EXPECT_TRUE(SameBits(base.data(), other.data(), base.size())) << name;
      }
    }
  }
}

TEST(NumberLayersTest, NotANumberStaysOne) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const Kind& kind : Kinds()) {
    const Shape shape{1, 2, 3};
    Rng rng(4);
    for (const float x : {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf, 3e38f, -3e38f}) {
      Tensors given = RandomTensors(kind, shape, 2, &rng);
      given.inputs[1][0] = x;
      const Results found = RunProgram(*Program(kind, shape), given);
      const bool is_finite = std::abs(x) < kInf;
      if (!is_finite) EXPECT_FALSE(std::isfinite(found.outputs[0][kBefore])) << kind.name;
      EXPECT_TRUE(std::isfinite(found.outputs[0].back())) << kind.name;  // of the other row
    }
  }
}

TEST(NumberLayersTest, OtherShapesAreRefused) {
  EXPECT_THROW(CurvesOfNumbers({0, 0, 3}, {1, 0, 7}, 2, 0), std::invalid_argument);
  EXPECT_THROW(CurvesOfNumbers({0, 0, 3}, {1, 0, 2}, 2, 0), std::invalid_argument);
  EXPECT_THROW(CurvesOfNumbers({0, 0, 3}, {1, 0, 6}, 0, 0), std::invalid_argument);
  EXPECT_THROW(WavesOfNumbers({0, 0, 3}, {1, 0, 7}, 2, {0, 1, 2}), std::invalid_argument);
  EXPECT_THROW(WavesOfNumbers({0, 0, 3}, {1, 0, 6}, 0, {0, 1, 2}), std::invalid_argument);
}

}  // namespace
}  // namespace msrec
