// SPDX-License-Identifier: Apache-2.0
//
// The optimizer step for dense parameters, which are in MindSpore's memory. One pass updates all
// parameters, in parallel over pieces of the parameters. The results do not depend on the number of
// threads: pieces depend only on sizes, and each element is updated independently of all other
// elements.
#pragma once

#include <cstddef>
#include <vector>

#include "rows/kernels.h"
#include "rows/rule.h"
#include "util/thread_pool.h"

namespace msrec {

// Returns the number of states per element of a dense parameter, at most 3.
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

// Updates all parameters by one step of the optimizer's rule. A gradient and a parameter may share
// memory. For example, if the loss is sum(v * w), the gradient of w equals v, and MindSpore passes
// the memory of v as the gradient of w. The step uses all gradients as they are at the time of the
// call, before any parameter is updated. Parameters and states must not overlap.
void StepDense(const Kernels& kernels, const Rule& rule, std::vector<DenseParameter> parameters,
               ThreadPool* pool);

struct FloatSpan {
  const float* data;
  size_t n;
};

// Returns the sum of squares of all numbers. The sums of pieces are float64 numbers, which are
// added in a fixed order.
double SumOfSquares(const Kernels& kernels, const std::vector<FloatSpan>& spans, ThreadPool* pool);

}  // namespace msrec
