// SPDX-License-Identifier: Apache-2.0
//
// Causal self-attention over lists of values, and its gradient. List i of a batch is rows
// offsets[i] to offsets[i + 1] of a matrix, oldest first. A row has the queries of all heads, then
// the keys, then the values: [3 heads dim]. A row attends to itself and to earlier rows of its
// list.
//
// No padding is computed: the time follows the sum of squared lengths. The scores of a list are
// never stored whole: 16 rows of them exist at a time, and the gradient computes them again. Each
// list belongs to one task, and sums over lists go in a fixed order, so the number of threads
// never changes a bit.
#pragma once

#include <cstdint>

#include "sequence/attention_form.h"
#include "sequence/lists.h"
#include "util/thread_pool.h"

namespace msrec {

struct AttentionGradient {
  float* qkv = nullptr;          // [N, 3 width]
  float* by_distance = nullptr;  // [distances], if the form has them
  float* by_time = nullptr;      // [buckets]
};

// Writes output [N, width].
void Attend(const AttentionForm& form, const Lists& lists, const float* qkv, float* output,
            ThreadPool* pool);

// Writes the gradients, given the gradient of the output [N, width].
void AttendGradient(const AttentionForm& form, const Lists& lists, const float* qkv,
                    const float* of_output, const AttentionGradient& gradient, ThreadPool* pool);

}  // namespace msrec
