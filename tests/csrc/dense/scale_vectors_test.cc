// SPDX-License-Identifier: Apache-2.0
//
// Vectors that numbers scale: values and gradients against the formula in double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "dense/scale_groups.h"
#include "dense_testing.h"
#include "testing.h"
#include "util/thread_pool.h"

namespace msrec {
namespace {

// The scaled vectors stand behind other columns, an input.
constexpr int64_t kBefore = 3;

std::unique_ptr<DenseProgram> Program(int64_t count, int64_t dim) {
  auto program = std::make_unique<DenseProgram>(Precision::kFloat32);
  const int row = program->AddValue(kBefore + count * dim);
  const View numbers = program->Whole(program->AddValue(count));
  program->AddInput({row, 0, kBefore});
  program->AddInput(numbers);
  program->AddLayer(std::make_unique<ScaleVectors>(numbers, View{row, kBefore, count * dim}, 0));
  program->AddOutput(program->Whole(row));
  program->Finish(1, 0);
  return program;
}

Tensors RandomTensors(int64_t batch, int64_t count, int64_t dim, Rng* rng) {
  Tensors given;
  given.batch = batch;
  given.inputs = {rng->Floats(batch * kBefore), rng->Floats(batch * count)};
  given.parameters = {rng->Floats(count * dim)};
  given.output_gradients = {rng->Floats(batch * (kBefore + count * dim))};
  return given;
}

void Check(int64_t batch, int64_t count, int64_t dim, Rng* rng) {
  const Tensors given = RandomTensors(batch, count, dim, rng);
  const Results found = RunProgram(*Program(count, dim), given);
  const int64_t width = kBefore + count * dim;
  std::vector<double> of_vectors(static_cast<size_t>(count * dim));
  for (int64_t r = 0; r < batch; ++r) {
    for (int64_t n = 0; n < count; ++n) {
      const double x = given.inputs[1][r * count + n];
      double of_number = 0;
      for (int64_t d = 0; d < dim; ++d) {
        const int64_t at = n * dim + d;
        const double vector = given.parameters[0][at];
        const double dy = given.output_gradients[0][r * width + kBefore + at];
        ASSERT_NEAR(found.outputs[0][r * width + kBefore + at], x * vector, 1e-6);
        of_number += dy * vector;
        of_vectors[at] += dy * x;
      }
      ASSERT_NEAR(found.input_gradients[1][r * count + n], of_number, 1e-5);
    }
  }
  for (size_t at = 0; at < of_vectors.size(); ++at) {
    ASSERT_NEAR(found.parameter_gradients[0][at], of_vectors[at],
                1e-5 * std::sqrt(static_cast<double>(batch + 1)));
  }
}

TEST(ScaleVectorsTest, IsTheFormula) {
  Rng rng(1);
  for (const int64_t count : {1, 3, 13}) {
    for (const int64_t dim : {1, 10, 16, 33}) {
      for (const int64_t batch : {0, 1, 5, 300, 1000}) Check(batch, count, dim, &rng);
    }
  }
}

TEST(ScaleVectorsTest, NumberOfThreadsChangesNoBit) {
  Rng rng(2);
  const auto program = Program(13, 10);
  const Tensors given = RandomTensors(1000, 13, 10, &rng);
  const int before = ThreadPool::Global().num_threads();
  ThreadPool::Global().SetNumThreads(1);
  const Results one = RunProgram(*program, given);
  ThreadPool::Global().SetNumThreads(5);
  const Results five = RunProgram(*program, given);
  ThreadPool::Global().SetNumThreads(before);
  EXPECT_TRUE(SameResults(one, five));
}

TEST(ScaleVectorsTest, OtherWidthsAreRefused) {
  EXPECT_THROW(ScaleVectors({0, 0, 3}, {1, 0, 7}, 0), std::invalid_argument);
  EXPECT_THROW(ScaleVectors({0, 0, 3}, {1, 0, 2}, 0), std::invalid_argument);
}

}  // namespace
}  // namespace msrec
