// SPDX-License-Identifier: Apache-2.0
//
// Causal self-attention over lists of values, and its gradient. List i of a batch consists of the
// rows [offsets[i], offsets[i + 1]) of a matrix, oldest first. A row [3 heads dim] consists of the
// queries of all heads, the keys, and the values. A row attends to itself and to earlier rows of
// its list.
//
// No padding rows are computed, so the time grows with the sum of the squared lengths. Only 16 rows
// of a list's scores are in memory at a time, and the gradient computes the scores again. The
// results are identical, bit for bit, for any number of threads: each list belongs to one task, and
// sums over lists are computed in a fixed order.
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

// Computes the gradients from the gradient of the output [N, width].
void AttendGradient(const AttentionForm& form, const Lists& lists, const float* qkv,
                    const float* of_output, const AttentionGradient& gradient, ThreadPool* pool);

}  // namespace msrec
