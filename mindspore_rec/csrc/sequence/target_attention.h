// SPDX-License-Identifier: Apache-2.0
//
// A target attention (DIN): the weighted sum of each list's values. A perceptron computes the
// weights from a value v, the list's candidate c, and their product:
//
//   x_1 = W_1 [c, v, c - v, c v] + b_1,  h_k = a_k(x_k),  x_k = W_k h_(k-1) + b_k,
//   score = w h_n + b
//
// W_1 is split into the weights of [v, c v] and the weights of c. The split saves time: W_1's
// product with [v, c v] has only half as many columns, and the product with c is computed once per
// list, not once per value.
//
// The values are computed in blocks of rows that stay in the cache. Only x_1, ..., x_n and the
// weights of values are kept for the gradient. In training, Dice needs the moments of all rows, so
// each Dice begins a new pass over the blocks. In all other cases, one pass computes all layers.
// The results are identical, bit for bit, for any number of threads: blocks and tasks depend only
// on the numbers of rows and columns, and sums of tasks are added in the order of the tasks.
#pragma once

#include "sequence/lists.h"
#include "sequence/target_form.h"
#include "util/thread_pool.h"

namespace msrec {

// Writes the sums [B, dim], which are 0 for empty lists.
void TargetAttend(const TargetForm& form, const Lists& lists, const TargetInputs& inputs,
                  const TargetKept& kept, float* sums, ThreadPool* pool);

}  // namespace msrec
