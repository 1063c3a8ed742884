// SPDX-License-Identifier: Apache-2.0
//
// Layer normalization, which normalizes each row by the row's mean and variance, and the gradient
// of layer normalization.
#pragma once

#include <cstdint>

#include "util/thread_pool.h"

namespace msrec {

struct NormForm {
  int64_t rows, width;
  const float* scale;  // [width]
  const float* shift;  // [width]
  float epsilon;
};

void Normalize(const NormForm& form, const float* x, float* output, ThreadPool* pool);

struct NormGradient {
  float* x;      // [rows, width]
  float* scale;  // [width]
  float* shift;  // [width]
};

void NormalizeGradient(const NormForm& form, const float* x, const float* of_output,
                       const NormGradient& gradient, ThreadPool* pool);

}  // namespace msrec
