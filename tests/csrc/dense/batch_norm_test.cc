// SPDX-License-Identifier: Apache-2.0
//
// Batch normalization against its formula in double, over slices, threads and batches.
#include "dense/batch_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "dense/program.h"
#include "util/thread_pool.h"

namespace msrec {
namespace {

constexpr int64_t kWidth = 21;
constexpr float kEpsilon = 1e-5f;
constexpr float kMomentum = 0.1f;

std::vector<float> Random(int64_t size, float shift, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> found(static_cast<size_t>(size));
  for (float& x : found) x = normal(random) + shift;
  return found;
}

struct Result {
  std::vector<float> y, moved, dx, dgamma, dbeta;
};

struct Case {
  int64_t batch;
  bool training;
  std::vector<float> x, dy, gamma, beta, mean, variance;

  Case(int64_t rows, bool trains, float shift)
      : batch(rows),
        training(trains),
        x(Random(rows * kWidth, shift, 1)),
        dy(Random(rows * kWidth, 0.5f, 2)),
        gamma(Random(kWidth, 1, 3)),
        beta(Random(kWidth, 0, 4)),
        mean(Random(kWidth, shift, 5)),
        variance(kWidth, 1.5f) {}
};

// Memory of one call, with rubbish in it.
std::vector<float> Poisoned(int64_t floats) {
  return std::vector<float>(static_cast<size_t>(floats + 16), std::nanf(""));
}

Result Passes(const Case& c, Activation activation) {
  DenseProgram program(Precision::kFloat32);
  BatchNorm norm;
  norm.input = program.Whole(program.AddValue(kWidth));
  norm.output = program.Whole(program.AddValue(kWidth));
  norm.gamma = 0;
  norm.beta = 1;
  norm.mean = 0;
  norm.variance = 1;
  norm.activation = activation;
  norm.epsilon = kEpsilon;
  norm.momentum = kMomentum;
  program.AddInput(norm.input);
  const int64_t at = AddBatchNorm(norm, c.training, &program);
  program.AddOutput(norm.output);
  program.Finish(2, 2);

  const int64_t slice = SliceRows(c.batch);
  const int64_t padded = (c.batch + slice - 1) / slice * slice;
  auto saved = Poisoned(padded * program.saved_width());
  auto packed = Poisoned(program.packed_bytes() / 4);
  auto gradients = Poisoned(padded * program.gradient_width());
  BatchRun run;
  run.training = true;
  run.batch = c.batch;
  run.saved = saved.data();
  run.packed = reinterpret_cast<char*>(packed.data());
  run.parameters = {c.gamma.data(), c.beta.data()};
  run.extras = {c.mean.data(), c.variance.data()};
  Result found;
  found.y.resize(c.x.size());
  program.Forward(&run, {c.x.data()}, {found.y.data()});
  if (c.training) found.moved.assign(packed.begin() + at, packed.begin() + at + 2 * kWidth);

  found.dx.resize(c.x.size());
  found.dgamma.assign(kWidth, std::nanf(""));
  found.dbeta.assign(kWidth, std::nanf(""));
  run.gradients = gradients.data();
  run.parameter_gradients = {found.dgamma.data(), found.dbeta.data()};
  program.Backward(&run, {c.dy.data()}, {found.dx.data()});
  return found;
}

// The same with relu, column by column.
Result Model(const Case& c) {
  Result found;
  found.y.resize(c.x.size());
  found.dx.resize(c.x.size());
  found.moved.resize(2 * kWidth);
  found.dgamma.resize(kWidth);
  found.dbeta.resize(kWidth);
  const auto n = static_cast<double>(c.batch);
  for (int64_t j = 0; j < kWidth; ++j) {
    double mean = 0, squares = 0;
    for (int64_t r = 0; r < c.batch; ++r) mean += c.x[r * kWidth + j] / n;
    for (int64_t r = 0; r < c.batch; ++r) squares += std::pow(c.x[r * kWidth + j] - mean, 2);
    found.moved[j] = c.batch == 0 ? c.mean[j] : 0.9 * c.mean[j] + 0.1 * mean;
    found.moved[kWidth + j] =
        c.batch < 2 ? c.variance[j] : 0.9 * c.variance[j] + 0.1 * squares / (n - 1);
    double variance = squares / n;
    if (!c.training) mean = c.mean[j], variance = c.variance[j];
    const double inverse = 1 / std::sqrt(variance + kEpsilon);
    double sum = 0, products = 0;
    std::vector<double> g, normal;
    for (int64_t r = 0; r < c.batch; ++r) {
      normal.push_back((c.x[r * kWidth + j] - mean) * inverse);
      const double z = normal.back() * c.gamma[j] + c.beta[j];
      found.y[r * kWidth + j] = std::max(z, 0.0);
      g.push_back(z > 0 ? c.dy[r * kWidth + j] : 0.0);
      sum += g.back();
      products += g.back() * normal.back();
    }
    found.dbeta[j] = sum;
    found.dgamma[j] = products;
    for (int64_t r = 0; r < c.batch; ++r) {
      const double less = c.training ? (sum + normal[r] * products) / n : 0;
      found.dx[r * kWidth + j] = c.gamma[j] * inverse * (g[r] - less);
    }
  }
  return found;
}

void ExpectNear(const std::vector<float>& found, const std::vector<float>& model, double most) {
  ASSERT_EQ(found.size(), model.size());
  double scale = 1;
  for (const float x : model) scale = std::max(scale, std::abs(static_cast<double>(x)));
  for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], model[i], most * scale) << i;
}

TEST(BatchNormTest, IsTheFormulaForAnyBatch) {
  for (const bool training : {true, false}) {
    for (const int64_t batch : {0, 1, 2, 3, 17, 64, 65, 1000, 2049}) {
      SCOPED_TRACE(testing::Message() << training << " " << batch);
      const Case c(batch, training, 0.3f);
      const Result found = Passes(c, Activation::kRelu);
      const Result model = Model(c);
      // Few rows have variances, and so gradients, of which most is cancelled.
      const double most = batch < 3 ? 2e-3 : 2e-5;
      ExpectNear(found.y, model.y, 2e-5);
      if (training) ExpectNear(found.moved, model.moved, 1e-6);
      ExpectNear(found.dx, model.dx, most);
      ExpectNear(found.dgamma, model.dgamma, most);
      ExpectNear(found.dbeta, model.dbeta, 2e-5);
    }
  }
}

TEST(BatchNormTest, FarFromZeroTheVarianceIsRight) {
  const Case c(1000, true, 1e4f);
  const Result found = Passes(c, Activation::kNone);
  for (int64_t j = 0; j < kWidth; ++j) {
    ASSERT_NEAR(found.moved[kWidth + j], Model(c).moved[kWidth + j], 1e-4);
  }
}

TEST(BatchNormTest, SameBitsForAnyNumberOfThreads) {
  const Case c(1500, true, 2.0f);
  std::vector<Result> found;
  for (const int threads : {1, 2, 5}) {
    ThreadPool::Global().SetNumThreads(threads);
    found.push_back(Passes(c, Activation::kTanh));
  }
  ThreadPool::Global().SetNumThreads(2);
  for (const Result& other : found) {
    EXPECT_EQ(other.y, found[0].y);
    EXPECT_EQ(other.moved, found[0].moved);
    EXPECT_EQ(other.dx, found[0].dx);
    EXPECT_EQ(other.dgamma, found[0].dgamma);
    EXPECT_EQ(other.dbeta, found[0].dbeta);
  }
}

TEST(BatchNormTest, NonsenseIsRefused) {
  DenseProgram program(Precision::kFloat32);
  BatchNorm norm;
  norm.input = program.Whole(program.AddValue(3));
  norm.output = program.Whole(program.AddValue(4));
  program.AddInput(norm.input);
  EXPECT_THROW(AddBatchNorm(norm, false, &program), std::invalid_argument);
  norm.output = program.Whole(program.AddValue(3));
  norm.activation = Activation::kGelu;
  EXPECT_THROW(AddBatchNorm(norm, false, &program), std::invalid_argument);
}

}  // namespace
}  // namespace msrec
