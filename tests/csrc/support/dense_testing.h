// SPDX-License-Identifier: Apache-2.0
//
// Helpers for tests of dense programs: oneDNN, memory that is poisoned and watched at its ends, and
// a run of a program, forward and backward.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dense/program.h"

namespace msrec {

// Opens oneDNN; returns "" or why there is none. The path is MSREC_TEST_ONEDNN, else
// MINDSPORE_REC_ONEDNN, else that of the MindSpore in .venv of the working directory.
std::string OpenOneDnn();

// Base of tests that compute products. Without oneDNN they are skipped, and fail where
// MINDSPORE_REC_REQUIRE_ALL=1.
class OneDnnTest : public ::testing::Test {
 protected:
  void SetUp() override;
};

// n floats that are NaN at first, with NaN before and after them that nothing may overwrite.
class Poisoned {
 public:
  explicit Poisoned(int64_t n);
  float* data() { return memory_.get() + kGuard; }
  const float* data() const { return memory_.get() + kGuard; }
  int64_t size() const { return size_; }
  // Whether what stands before and after the floats is as it was.
  bool GuardsAreWhole() const;
  std::vector<float> Values() const { return {data(), data() + size_}; }

 private:
  static constexpr int64_t kGuard = 64;
  struct Free {
    void operator()(float* p) const;
  };
  const int64_t size_;
  std::unique_ptr<float, Free> memory_;
};

// Arguments of a program's run, and its results.
struct Tensors {
  int64_t batch = 0;
  std::vector<std::vector<float>> inputs, parameters, output_gradients;
  std::vector<const void*> extras;
};
struct Results {
  std::vector<std::vector<float>> outputs, input_gradients, parameter_gradients;
};

// Runs a program in memory that is NaN before each pass; also fails where it writes outside. With
// `training` false, forward alone.
Results RunProgram(const DenseProgram& program, const Tensors& given, bool training = true);

// Whether all bits are the same.
bool SameResults(const Results& a, const Results& b);

}  // namespace msrec
