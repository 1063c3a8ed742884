// SPDX-License-Identifier: Apache-2.0
//
// The settings and the matrices of a target attention; target_attention.h has the formula.
#pragma once

#include <cstdint>
#include <vector>

#include "dense/program.h"

namespace msrec {

struct TargetLayer {
  int64_t width;
  const float* weight;  // [width, width of the previous layer]; [width, 4 dim] for the first layer
  const float* bias;    // [width]
  const float* alpha;   // [width]
  // Only for Dice: the mean and the variance [width] by which each column is normalized. If Dice
  // normalizes by the moments of the batch, the forward pass computes the moments and writes these
  // arrays.
  float* mean = nullptr;
  float* variance = nullptr;
};

struct TargetForm {
  int64_t dim = 1;
  bool dice = false;      // true for Dice, false for PReLU
  bool of_batch = false;  // true if Dice normalizes by the moments of the batch
  bool softmax = false;   // true if the weights are the softmax of each list's scores
  Precision precision = Precision::kFloat32;
  float epsilon = 0.0f;  // added to variances
  std::vector<TargetLayer> layers;
  const float* last_weight = nullptr;  // [width of the last layer]
  float last_bias = 0.0f;

  int64_t widths() const {
    int64_t sum = 0;
    for (const TargetLayer& layer : layers) sum += layer.width;
    return sum;
  }
};

// Arrays that a forward pass writes for the gradient.
struct TargetKept {
  float* inputs;   // x_1, x_2, ...: matrices [TargetRows, width], one after the other
  float* weights;  // [N]
};

struct TargetInputs {
  const float* candidates;  // [B, dim]
  const float* values;      // [N, dim]
};

}  // namespace msrec
