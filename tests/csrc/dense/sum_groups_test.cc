// SPDX-License-Identifier: Apache-2.0
//
// The sum of groups of columns, alone and beside another reader of its input.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "dense/row_layers.h"
#include "dense_testing.h"
#include "testing.h"
#include "util/thread_pool.h"

namespace msrec {
namespace {

// The input is read `readers` times, so that all but one add to its gradient.
std::unique_ptr<DenseProgram> Program(int64_t groups, int64_t width, int readers) {
  auto program = std::make_unique<DenseProgram>(Precision::kFloat32);
  const View x = program->Whole(program->AddValue(groups * width));
  program->AddInput(x);
  for (int i = 0; i < readers; ++i) {
    const View y = program->Whole(program->AddValue(width));
    program->AddLayer(std::make_unique<SumGroups>(x, y));
    program->AddOutput(y);
  }
  program->Finish(0, 0);
  return program;
}

Tensors RandomTensors(int64_t batch, int64_t groups, int64_t width, int readers, Rng* rng) {
  Tensors given;
  given.batch = batch;
  given.inputs = {rng->Floats(batch * groups * width)};
  for (int i = 0; i < readers; ++i) {
    given.output_gradients.push_back(rng->Floats(batch * width));
  }
  return given;
}

void Check(int64_t batch, int64_t groups, int64_t width, int readers, Rng* rng) {
  const Tensors given = RandomTensors(batch, groups, width, readers, rng);
  const Results found = RunProgram(*Program(groups, width, readers), given);
  for (int64_t r = 0; r < batch; ++r) {
    for (int64_t j = 0; j < width; ++j) {
      const float* row = given.inputs[0].data() + r * groups * width;
      float sum = row[j];
      for (int64_t k = 1; k < groups; ++k) sum += row[k * width + j];
      float gradient = 0.0f;  // from the last reader on
      for (int i = readers; i-- > 0;) gradient += given.output_gradients[i][r * width + j];
      for (int i = 0; i < readers; ++i) ASSERT_EQ(found.outputs[i][r * width + j], sum);
      for (int64_t k = 0; k < groups; ++k) {
        ASSERT_EQ(found.input_gradients[0][(r * groups + k) * width + j], gradient);
      }
    }
  }
}

TEST(SumGroupsTest, IsTheSum) {
  Rng rng(1);
  for (const int64_t groups : {1, 2, 4}) {
    for (const int64_t width : {1, 17}) {
      for (const int64_t batch : {0, 1, 5, 1000}) {
        for (const int readers : {1, 2}) Check(batch, groups, width, readers, &rng);
      }
    }
  }
}

TEST(SumGroupsTest, OtherWidthsAreRefused) {
  EXPECT_THROW(SumGroups({0, 0, 4}, {1, 0, 3}), std::invalid_argument);
  EXPECT_THROW(SumGroups({0, 0, 3}, {1, 0, 4}), std::invalid_argument);
  EXPECT_THROW(SumGroups({0, 0, 3}, {1, 0, 0}), std::invalid_argument);
}

}  // namespace
}  // namespace msrec
