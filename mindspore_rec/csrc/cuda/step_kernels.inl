// SPDX-License-Identifier: Apache-2.0
//
// Optimizer steps of dense parameters: the formulas of optim/kernels.inl, a thread a number.
#pragma once

#include "cuda/kernel.h"
#include "dense/functions.inl"

namespace msrec {
namespace kernels {

// What weight decay adds for that weight; without decay a zero, whatever the weight.
MSREC_INLINE float DecayOf(const StepArguments& a, float weight_decay, float w) {
  return a.decays ? weight_decay * w : WithSign(0.0f, w);
}

MSREC_INLINE float StepGradient(const StepArguments& a, float weight_decay, int64_t i) {
  return a.grad_scale * a.gradient[i] + DecayOf(a, weight_decay, a.w[i]);
}

MSREC_KERNEL(StepSgd, StepArguments) {
  a.w[i] -= a.learning_rate * StepGradient(a, a.weight_decay, i);
}

MSREC_KERNEL(StepMomentum, StepArguments) {
  const float g = StepGradient(a, a.weight_decay, i);
  const float moved = a.momentum * a.states[0][i] + g;
  a.states[0][i] = moved;
  a.w[i] -= a.learning_rate * (a.nesterov ? g + a.momentum * moved : moved);
}

MSREC_KERNEL(StepAdagrad, StepArguments) {
  const float g = StepGradient(a, a.weight_decay, i);
  const float sum = a.states[0][i] + g * g;
  a.states[0][i] = sum;
  a.w[i] -= a.learning_rate * g / (SquareRoot(sum) + a.epsilon);
}

MSREC_KERNEL(StepAdam, StepArguments) {
  const float w = a.w[i];
  const float g = StepGradient(a, a.adam_coupled, i);
  const float one_b1 = 1.0f - a.beta1;
  const float one_b2 = 1.0f - a.beta2;
  const float m = a.beta1 * a.states[0][i] + one_b1 * g;
  const float v = a.beta2 * a.states[1][i] + one_b2 * g * g;
  a.states[0][i] = m;
  a.states[1][i] = v;
  const float move = a.nesterov ? a.beta1 * m + one_b1 * g : m;
  a.w[i] =
      (w - DecayOf(a, a.adam_shrink, w)) - a.adam_rate * move / (SquareRoot(v) + a.adam_epsilon);
}

MSREC_INLINE float FtrlRoot(const StepArguments& a, float n) {
  return a.lr_power == -0.5f ? SquareRoot(n) : Power(n, -a.lr_power);
}

MSREC_KERNEL(StepFtrl, StepArguments) {
  const float g = StepGradient(a, a.weight_decay, i);
  const float before = a.states[0][i];
  const float n = before + g * g;
  const float root = FtrlRoot(a, n);
  const float z = a.states[1][i] + g - (root - FtrlRoot(a, before)) / a.learning_rate * a.w[i];
  a.states[0][i] = n;
  a.states[1][i] = z;
  const float toward = (z > 0.0f ? a.l1 : -a.l1) - z;
  a.w[i] = Magnitude(z) > a.l1 ? toward / (root / a.learning_rate + a.ftrl_l2x2) : 0.0f;
}

MSREC_KERNEL(StepRmsProp, StepArguments) {
  const float g = StepGradient(a, a.weight_decay, i);
  const float keep = 1.0f - a.decay;
  const float square = a.decay * a.states[0][i] + keep * g * g;
  a.states[0][i] = square;
  float variance = square;
  if (a.centered) {
    const float mean = a.decay * a.states[2][i] + keep * g;
    a.states[2][i] = mean;
    const float centred = square - mean * mean;
    variance = centred > 0.0f ? centred : 0.0f;  // rounding may leave it below
  }
  const float moved =
      a.momentum * a.states[1][i] + a.learning_rate * g / SquareRoot(variance + a.epsilon);
  a.states[1][i] = moved;
  a.w[i] -= moved;
}

}  // namespace kernels
}  // namespace msrec
