// SPDX-License-Identifier: Apache-2.0
//
// A target attention (DIN): the weighted sum of each list's values. A perceptron computes the
// weights from a value v, the list's candidate c, and their product:
//
//   x_1 = W_1 [c, v, c - v, c v] + b_1,  h_k = a_k(x_k),  x_k = W_k h_(k-1) + b_k,
//   score = w h_n + b
//
// W_1 is split into the weights of [v, c v] and the weights of c. So the product over the values
// has half as many columns, and the product with c has only one row per list.
//
// The values are computed in blocks of rows that stay in the cache. Only x_1, ..., x_n and the
// weights of values are kept for the gradient. Dice in training needs the moments of all rows, so
// one pass over the blocks ends before each Dice; otherwise one pass computes all layers. The
// results are identical, bit for bit, for any number of threads: blocks and tasks depend only on
// the numbers of rows and columns, and sums of tasks are added in the order of the tasks.
#pragma once

#include <cstdint>
#include <vector>

#include "dense/program.h"
#include "sequence/lists.h"
#include "util/thread_pool.h"

namespace msrec {

struct TargetLayer {
  int64_t width;
  const float* weight;  // [width, width of the layer before]; of the first layer [width, 4 dim]
  const float* bias;    // [width]
  const float* alpha;   // [width]
  // Dice only: the moments by which columns are normalized. A forward pass writes them if the
  // moments are of the batch.
  float* mean = nullptr;
  float* variance = nullptr;
};

struct TargetForm {
  int64_t dim = 1;
  bool dice = false;      // otherwise PReLU
  bool of_batch = false;  // whether Dice normalizes by the moments of the batch
  bool softmax = false;   // whether the weights are the softmax of each list's scores
  Precision precision = Precision::kFloat32;
  float epsilon = 0.0f;  // is added to variances
  std::vector<TargetLayer> layers;
  const float* last_weight = nullptr;  // [width of the last layer]
  float last_bias = 0.0f;

  int64_t widths() const;
};

// Rows of the matrices x_k for N values: N, filled up to whole blocks.
int64_t TargetRows(int64_t values);

// What a forward pass writes for the gradient.
struct TargetKept {
  float* inputs;   // x_1, x_2, ...: matrices [TargetRows, width], one after the other
  float* weights;  // [N]
};

struct TargetInputs {
  const float* candidates;  // [B, dim]
  const float* values;      // [N, dim]
};

// Writes the sums [B, dim], which are 0 for empty lists.
void TargetAttend(const TargetForm& form, const Lists& lists, const TargetInputs& inputs,
                  const TargetKept& kept, float* sums, ThreadPool* pool);

struct TargetLayerGradient {
  float* weight;
  float* bias;
  float* alpha;
};

struct TargetGradient {
  float* candidates;
  float* values;
  std::vector<TargetLayerGradient> layers;
  float* last_weight;
  float* last_bias;
};

// Writes the gradients. `memory` has the size TargetRows * TargetMemoryWidth.
void TargetAttendGradient(const TargetForm& form, const Lists& lists, const TargetInputs& inputs,
                          const TargetKept& kept, const float* of_sums,
                          const TargetGradient& gradient, float* memory, ThreadPool* pool);
int64_t TargetMemoryWidth(const std::vector<int64_t>& widths);

}  // namespace msrec
