// SPDX-License-Identifier: Apache-2.0
//
// Optimizer steps of dense parameters in a device's memory.
#pragma once

#include <cstddef>

#include "cuda/kernel_device.h"
#include "optim/kernels.h"

namespace msrec {

// Updates n numbers w by their gradients g and one step of the rule, as `Kernels::step_dense` does:
// each number by itself, with as many arrays of states as the rule has. Of kRowWiseAdagrad each
// number has an accumulator, as in `StepDense`.
void LaunchDenseStep(KernelDevice* device, const Rule& rule, const StepConstants& constants,
                     size_t n, float* w, float* const states[3], const float* g);

}  // namespace msrec
