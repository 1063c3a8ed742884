// SPDX-License-Identifier: Apache-2.0
//
// The steps of an attention in which each list has one candidate, and the gradients of these steps.
// The steps pair the candidate with each value, add one row per list to each value, and compute the
// weighted sum of each list.
#pragma once

#include <cstdint>

#include "sequence/lists.h"
#include "util/thread_pool.h"

namespace msrec {

// Writes pairs [N, 2 dim]: each value, and its product with the list's candidate.
void PairValues(const Lists& lists, int64_t dim, const float* candidates, const float* values,
                float* pairs, ThreadPool* pool);
void PairValuesGradient(const Lists& lists, int64_t dim, const float* candidates,
                        const float* values, const float* of_pairs, float* of_candidates,
                        float* of_values, ThreadPool* pool);

// Adds a list's row in `rows` [B, width] to each of the list's rows in `x` [N, width].
void AddRows(const Lists& lists, int64_t width, const float* x, const float* rows, float* output,
             ThreadPool* pool);
// Writes the gradient of `rows`: for each list, the sum of the list's rows in `x` [N, width], which
// is 0 for an empty list.
void SumRows(const Lists& lists, int64_t width, const float* x, float* rows, ThreadPool* pool);

struct PoolForm {
  int64_t dim = 1;
  bool softmax = false;  // whether the weights are the softmax of each list's scores
};

// Writes the weights [N] and the weighted sums [B, dim]; the sum of an empty list is 0.
void PoolValues(const PoolForm& form, const Lists& lists, const float* scores, const float* values,
                float* weights, float* sums, ThreadPool* pool);
void PoolValuesGradient(const PoolForm& form, const Lists& lists, const float* weights,
                        const float* values, const float* of_sums, float* of_scores,
                        float* of_values, ThreadPool* pool);

}  // namespace msrec
