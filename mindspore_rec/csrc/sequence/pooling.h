// SPDX-License-Identifier: Apache-2.0
//
// Computes the weighted sum of each list's values, and the gradient of this sum.
#pragma once

#include <cstdint>

#include "sequence/lists.h"
#include "util/thread_pool.h"

namespace msrec {

struct PoolForm {
  int64_t dim = 1;
  bool softmax = false;  // true if the weights are the softmax of each list's scores
};

// Replaces the scores [N] by the weights, and writes the weighted sums [B, dim]; the sum of an
// empty list is 0.
void PoolValues(const PoolForm& form, const Lists& lists, const float* values, float* weights,
                float* sums, ThreadPool* pool);
void PoolValuesGradient(const PoolForm& form, const Lists& lists, const float* weights,
                        const float* values, const float* of_sums, float* of_scores,
                        float* of_values, ThreadPool* pool);

}  // namespace msrec
