// SPDX-License-Identifier: Apache-2.0
//
// The optimizer step of dense parameters in MindSpore's memory: all parameters in one pass, in
// parallel over pieces. Pieces depend only on sizes, and each element is updated on its own, so the
// results do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <vector>

#include "rows/kernels.h"
#include "util/thread_pool.h"

namespace msrec {

// Number of states that a rule keeps for each element of a dense parameter, at most 3.
int DenseStates(const Rule& rule);

// A dense parameter, its gradient and its states, each of n floats. Each parameter has its own rate
// and decay.
struct DenseParameter {
  size_t n = 0;
  float* w = nullptr;
  const float* g = nullptr;
  float* states[3] = {nullptr, nullptr, nullptr};
  StepInput input;
};

// Updates all parameters by one step of the rule. Each element uses its gradient at the time of the
// call, because a gradient may lie in the memory of a parameter. For example, if one weight is the
// gradient of another weight, MindSpore passes the weight without a copy. Parameters and states
// must not overlap.
void StepDense(const Kernels& kernels, const Rule& rule, std::vector<DenseParameter> parameters,
               ThreadPool* pool);

struct FloatSpan {
  const float* data;
  size_t n;
};

// Returns the sum of squares of all numbers. Pieces are summed in float64 and added in order.
double SumOfSquares(const Kernels& kernels, const std::vector<FloatSpan>& spans, ThreadPool* pool);

}  // namespace msrec
