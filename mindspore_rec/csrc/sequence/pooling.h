// SPDX-License-Identifier: Apache-2.0
//
// The steps of an attention of one candidate per list, and their gradients: pairs of the candidate
// and each value, a row per list that is added to each value, and weighted sums of each list.
#pragma once

#include <cstdint>

#include "sequence/lists.h"
#include "util/thread_pool.h"

namespace msrec {

// Writes each value and its product with the list's candidate: pairs [N, 2 dim].
void PairValues(const Lists& lists, int64_t dim, const float* candidates, const float* values,
                float* pairs, ThreadPool* pool);
void PairValuesGradient(const Lists& lists, int64_t dim, const float* candidates,
                        const float* values, const float* of_pairs, float* of_candidates,
                        float* of_values, ThreadPool* pool);

// Writes x [N, width] plus the list's row of rows [B, width].
void AddRows(const Lists& lists, int64_t width, const float* x, const float* rows, float* output,
             ThreadPool* pool);
// Writes the sum of each list's rows of x [N, width], 0 for an empty list: the gradient of rows.
void SumRows(const Lists& lists, int64_t width, const float* x, float* rows, ThreadPool* pool);

struct PoolForm {
  int64_t dim = 1;
  bool softmax = false;  // whether the weights are the softmax of each list's scores
};

// Writes the weights [N] and the weighted sums [B, dim], 0 for an empty list.
void PoolValues(const PoolForm& form, const Lists& lists, const float* scores, const float* values,
                float* weights, float* sums, ThreadPool* pool);
void PoolValuesGradient(const PoolForm& form, const Lists& lists, const float* weights,
                        const float* values, const float* of_sums, float* of_scores,
                        float* of_values, ThreadPool* pool);

}  // namespace msrec
