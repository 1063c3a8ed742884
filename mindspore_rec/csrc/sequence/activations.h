// SPDX-License-Identifier: Apache-2.0
//
// Dice and PReLU over the rows of a matrix [rows, width], and their gradients. Sums over rows are
// computed in blocks of a fixed size, in a fixed order.
#pragma once

#include <cstdint>

#include "util/thread_pool.h"

namespace msrec {

struct DiceForm {
  int64_t rows, width;
  const float* alpha;     // [width]
  const float* mean;      // [width]: of the moments by which columns are normalized
  const float* variance;  // [width]
  float epsilon;          // added to variances
  bool of_batch;  // true if the moments are computed from the batch, and so depend on the inputs
};

// Writes the mean and the variance of each column. Requires at least one row.
void Moments(int64_t rows, int64_t width, const float* x, float* mean, float* variance,
             ThreadPool* pool);

void Dice(const DiceForm& form, const float* x, float* output, ThreadPool* pool);
void DiceGradientOf(const DiceForm& form, const float* x, const float* of_output, float* of_x,
                    float* of_alpha, ThreadPool* pool);

struct PReluForm {
  int64_t rows, width;
  const float* alpha;  // [width]
};

void PRelu(const PReluForm& form, const float* x, float* output, ThreadPool* pool);
void PReluGradientOf(const PReluForm& form, const float* x, const float* of_output, float* of_x,
                     float* of_alpha, ThreadPool* pool);

}  // namespace msrec
