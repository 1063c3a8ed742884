// SPDX-License-Identifier: Apache-2.0
//
// The optimizer step of dense parameters, which are in MindSpore's memory: all of them in one pass,
// in parallel over pieces. Pieces depend on sizes only and each element is updated by itself, so
// results do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <vector>

#include "rows/kernels.h"
#include "util/thread_pool.h"

namespace msrec {

// Number of states that a rule has for each element of a dense parameter, at most 3.
int DenseStates(const Rule& rule);

// A dense parameter, its gradient and its states, each of n floats; input has its own rate and
// decay.
struct DenseParameter {
  size_t n = 0;
  float* w = nullptr;
  const float* g = nullptr;
  float* states[3] = {nullptr, nullptr, nullptr};
  StepInput input;
};

// Updates all parameters by one step of the rule, each element by the gradient it had at the call:
// a gradient may lie in the memory of a parameter, as MindSpore passes on a weight that is the
// gradient of another. Requires that parameters and states do not overlap.
void StepDense(const Kernels& kernels, const Rule& rule, std::vector<DenseParameter> parameters,
               ThreadPool* pool);

struct FloatSpan {
  const float* data;
  size_t n;
};

// Returns the sum of squares of all numbers: pieces in float64, added in order.
double SumOfSquares(const Kernels& kernels, const std::vector<FloatSpan>& spans, ThreadPool* pool);

}  // namespace msrec
