// SPDX-License-Identifier: Apache-2.0
//
// Layers of cross networks and gates: values against the formulas in double precision, gradients
// against its central differences, and each set of loops against the base set's bits.
#include "dense/cross_layers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "dense/scale_groups.h"
#include "dense/softmax_layer.h"
#include "testing.h"

namespace msrec {
namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

Floats RandomFloats(int64_t n, Rng* rng) {
  Floats found(static_cast<size_t>(n));
  for (float& x : found) x = rng->Float(-0.8f, 0.8f);
  return found;
}

// Inputs, then parameters: what a program learns from or by.
struct Case {
  std::unique_ptr<DenseProgram> program;
  std::vector<int64_t> sizes;  // of inputs, a row, then of parameters
  int inputs = 0;
  int64_t width = 0;  // of the output
  // The output of one row.
  std::function<Doubles(const std::vector<Doubles>&, int64_t row)> formula;
};

struct Found {
  Floats output;
  std::vector<Floats> gradients;
};

Found RunBoth(const Case& c, int64_t batch, const std::vector<Floats>& given, const Floats& dy) {
  const DenseProgram& program = *c.program;
  const int64_t padded = (batch + SliceRows(batch) - 1) / SliceRows(batch) * SliceRows(batch);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Floats saved(static_cast<size_t>(program.saved_width() * padded), nan);
  Floats kept(static_cast<size_t>(program.gradient_width() * padded), nan);
  std::vector<char> packed(static_cast<size_t>(program.packed_bytes()));
  Found found{Floats(static_cast<size_t>(batch * c.width), nan), {}};
  BatchRun run;
  run.batch = batch;
  run.training = true;
  run.saved = saved.data();
  run.packed = packed.data();
  run.gradients = kept.data();
  std::vector<const float*> inputs;
  for (size_t i = 0; i < given.size(); ++i) {
    found.gradients.emplace_back(given[i].size(), nan);
    if (static_cast<int>(i) < c.inputs) {
      inputs.push_back(given[i].data());
    } else {
      run.parameters.push_back(given[i].data());
    }
  }
  program.Forward(&run, inputs, {found.output.data()});
  std::vector<float*> input_gradients;
  for (size_t i = 0; i < given.size(); ++i) {
    auto& target = static_cast<int>(i) < c.inputs ? input_gradients : run.parameter_gradients;
    target.push_back(found.gradients[i].data());
  }
  program.Backward(&run, {dy.data()}, input_gradients);
  return found;
}

double Loss(const Case& c, int64_t batch, const std::vector<Doubles>& given, const Floats& dy) {
  double loss = 0;
  for (int64_t r = 0; r < batch; ++r) {
    const Doubles row = c.formula(given, r);
    for (int64_t j = 0; j < c.width; ++j) loss += dy[r * c.width + j] * row[j];
  }
  return loss;
}

void Check(const Case& c, int64_t batch, Rng* rng) {
  std::vector<Floats> given;
  for (size_t i = 0; i < c.sizes.size(); ++i) {
    given.push_back(RandomFloats(c.sizes[i] * (static_cast<int>(i) < c.inputs ? batch : 1), rng));
  }
  const Floats dy = RandomFloats(batch * c.width, rng);
  const Found found = RunBoth(c, batch, given, dy);
  std::vector<Doubles> exact;
  for (const Floats& floats : given) exact.emplace_back(floats.begin(), floats.end());
  for (int64_t r = 0; r < batch; ++r) {
    const Doubles row = c.formula(exact, r);
    for (int64_t j = 0; j < c.width; ++j) {
      ASSERT_NEAR(found.output[r * c.width + j], row[j], 1e-5 * (1 + std::fabs(row[j])));
    }
  }
  for (size_t i = 0; i < exact.size(); ++i) {
    for (size_t at = 0; at < exact[i].size(); at += 1 + rng->Below(1 + exact[i].size() / 8)) {
      const double kept = exact[i][at];
      exact[i][at] = kept + 1e-5;
      const double above = Loss(c, batch, exact, dy);
      exact[i][at] = kept - 1e-5;
      const double below = Loss(c, batch, exact, dy);
      exact[i][at] = kept;
      const double slope = (above - below) / 2e-5;
      ASSERT_NEAR(found.gradients[i][at], slope, 1e-4 * (1 + std::fabs(slope))) << i << " " << at;
    }
  }
}

Case Vectors(int64_t width, int64_t layers) {
  Case c;
  c.program = std::make_unique<DenseProgram>(Precision::kFloat32);
  const View x = c.program->Whole(c.program->AddValue(width));
  const View y = c.program->Whole(c.program->AddValue(width));
  const View products = c.program->Whole(c.program->AddValue(layers));
  c.program->AddInput(x);
  c.program->AddLayer(std::make_unique<CrossVectors>(x, y, products, 0, 1));
  c.program->AddOutput(y);
  c.program->Finish(2, 0);
  c.sizes = {width, layers * width, layers * width};
  c.inputs = 1;
  c.width = width;
  c.formula = [=](const std::vector<Doubles>& given, int64_t r) {
    const Doubles x0(given[0].begin() + r * width, given[0].begin() + (r + 1) * width);
    Doubles crossed = x0;
    for (int64_t k = 0; k < layers; ++k) {
      double product = 0;
      for (int64_t j = 0; j < width; ++j) product += crossed[j] * given[1][k * width + j];
      for (int64_t j = 0; j < width; ++j) {
        crossed[j] += x0[j] * product + given[2][k * width + j];
      }
    }
    return crossed;
  };
  return c;
}

// Two cross layers, of which the first has the network's input twice; the map of the first is that
// of the second weighed by gates.
Case Gated(int64_t groups, int64_t group) {
  const int64_t width = groups * group;
  Case c;
  c.program = std::make_unique<DenseProgram>(Precision::kFloat32);
  DenseProgram& program = *c.program;
  const auto add = [&](int64_t floats) { return program.Whole(program.AddValue(floats)); };
  const View x = add(width), t = add(width), scores = add(groups), gates = add(groups);
  const View weighed = add(width), first = add(width), second = add(width);
  for (const View& input : {x, t, scores}) program.AddInput(input);
  program.AddLayer(std::make_unique<Softmax>(scores, gates, groups));
  program.AddLayer(std::make_unique<ScaleGroups>(t, gates, weighed));
  program.AddLayer(std::make_unique<CrossCombine>(x, weighed, x, first));
  program.AddLayer(std::make_unique<CrossCombine>(x, t, first, second));
  program.AddOutput(second);
  program.Finish(0, 0);
  c.sizes = {width, width, groups};
  c.inputs = 3;
  c.width = width;
  c.formula = [=](const std::vector<Doubles>& given, int64_t r) {
    double total = 0;
    for (int64_t k = 0; k < groups; ++k) total += std::exp(given[2][r * groups + k]);
    Doubles row;
    for (int64_t j = 0; j < width; ++j) {
      const double in = given[0][r * width + j];
      const double map = given[1][r * width + j];
      const double gate = std::exp(given[2][r * groups + j / group]) / total;
      row.push_back(in * map + in * gate * map + in);
    }
    return row;
  };
  return c;
}

TEST(CrossLayersTest, VectorsAreTheFormula) {
  Rng rng(1);
  for (const int64_t width : {1, 5, 8, 31, 40, 75}) {
    for (const int64_t layers : {1, 2, 5}) {
      for (const int64_t batch : {1, 5, 33}) Check(Vectors(width, layers), batch, &rng);
    }
  }
  Check(Vectors(2051, 2), 2, &rng);
}

TEST(CrossLayersTest, CombinationsAndGatesAreTheFormula) {
  Rng rng(2);
  for (const int64_t groups : {1, 2, 5}) {
    for (const int64_t group : {1, 4, 13, 40}) {
      for (const int64_t batch : {1, 5, 33}) Check(Gated(groups, group), batch, &rng);
    }
  }
}

TEST(CrossLayersTest, EmptyBatchesHaveGradientsOfZero) {
  Rng rng(3);
  const Found found =
      RunBoth(Vectors(7, 3), 0, {{}, RandomFloats(21, &rng), RandomFloats(21, &rng)}, {});
  for (size_t i = 1; i < 3; ++i) {
    for (const float gradient : found.gradients[i]) ASSERT_EQ(gradient, 0.0f);
  }
}

TEST(CrossLayersTest, NumberOfThreadsChangesNoBit) {
  Rng rng(4);
  const Case c = Vectors(61, 3);
  const std::vector<Floats> given = {RandomFloats(61 * 1000, &rng), RandomFloats(183, &rng),
                                     RandomFloats(183, &rng)};
  const Floats dy = RandomFloats(61 * 1000, &rng);
  const int before = ThreadPool::Global().num_threads();
  ThreadPool::Global().SetNumThreads(1);
  const Found one = RunBoth(c, 1000, given, dy);
  ThreadPool::Global().SetNumThreads(5);
  const Found five = RunBoth(c, 1000, given, dy);
  ThreadPool::Global().SetNumThreads(before);
  EXPECT_EQ(one.output, five.output);
  EXPECT_EQ(one.gradients, five.gradients);
}

TEST(CrossLayersTest, OtherShapesAreRefused) {
  const auto view = [](int value, int64_t width) { return View{value, 0, width}; };
  EXPECT_THROW(CrossCombine(view(0, 3), view(1, 4), view(2, 3), view(3, 3)), std::invalid_argument);
  EXPECT_THROW(CrossVectors(view(0, 3), view(1, 4), view(2, 2), 0, 1), std::invalid_argument);
  EXPECT_THROW(CrossVectors(view(0, 3), view(1, 3), view(2, 65), 0, 1), std::invalid_argument);
  EXPECT_THROW(ScaleGroups(view(0, 7), view(1, 2), view(2, 7)), std::invalid_argument);
  EXPECT_THROW(ScaleGroups(view(0, 6), view(1, 2), view(2, 8)), std::invalid_argument);
}

// ---------------------------------------------------------------- loops

class CrossLoopsTest : public ::testing::TestWithParam<const char*> {};

TEST_P(CrossLoopsTest, BitsAreThoseOfTheBaseSet) {
  const Elementwise* set = FindElementwise(GetParam());
  if (set == nullptr) GTEST_SKIP() << "not on this CPU";
  const Elementwise& base = *FindElementwise("base");
  Rng rng(5);
  const int64_t rows = 3, layers = 3;
  for (const int64_t width : {1, 7, 8, 9, 31, 32, 33, 64, 100, 257}) {
    for (const bool adds : {false, true}) {
      const auto matrix = [&] { return RandomFloats(rows * width, &rng); };
      Floats x = matrix(), t = matrix(), g = matrix(), first = matrix(), second = matrix();
      const Floats weight = RandomFloats(layers * width, &rng), bias = RandomFloats(width, &rng);
      const Floats constants = RandomFloats(layers, &rng);
      const CrossRows cross{width, layers, weight.data(), constants.data(), bias.data(), adds};
      const Floats third = matrix(), sums = RandomFloats((layers + 1) * width + layers, &rng);
      const auto run = [&](const Elementwise& loops) {
        std::vector<Floats> found = {first,  second, third, sums, first, Floats(rows * layers),
                                     second, first,  third};
        const auto of = [&](Floats& m) { return Block{m.data(), width}; };
        loops.cross_combine_gradient(rows, width, of(x), of(t), of(g), {of(found[0]), adds},
                                     {of(found[1]), adds}, {of(found[2]), adds});
        const Block products{found[5].data(), layers};
        loops.cross_rows(rows, cross, of(x), of(t), products, of(found[4]));
        loops.cross_rows_gradient(rows, cross, of(x), of(t), products, of(g), {of(found[6]), adds},
                                  found[3].data());
        // One group, so that its length is the width.
        loops.scale_groups(rows, 1, width, products, of(x), of(found[7]));
        loops.scale_groups_gradient(rows, 1, width, products, of(x), of(g), {products, adds},
                                    {of(found[8]), adds});
        return found;
      };
      EXPECT_EQ(run(*set), run(base)) << width;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, CrossLoopsTest, ::testing::Values("avx2", "avx512"));

}  // namespace
}  // namespace msrec
