// SPDX-License-Identifier: Apache-2.0
//
// The loops over one list, for each instruction set. The results of all instruction sets are
// identical, bit for bit.
#pragma once

#include <cstdint>

#include "sequence/attention_form.h"

namespace msrec {

// Partial sums that one task computes.
struct AttentionSums {
  float* by_distance;  // [distances]
  float* by_time;      // [kTimeLanes, buckets]; each lane has the sums of every 16th key
};
constexpr int64_t kTimeLanes = 16;

// One list: its first row in each matrix, and the times of its rows.
struct AttentionList {
  int64_t length;
  const float* qkv;
  const int64_t* times;
};

// A normalization multiplies the normalized columns by `scale`, and then adds `shift`.
struct RowScales {
  const float* scale;  // [width]
  const float* shift;  // [width]
  float epsilon;       // added to variances
};

// Partial sums of one task of a gated attention.
struct GatedSums {
  AttentionSums biases;
  float* scale;  // [width]
  float* shift;  // [width]
};

// Parameters of a Dice activation: for each column, the slope below 0, and the moments that
// normalize the column.
struct DiceColumns {
  const float* alpha;
  const float* mean;
  const float* inverse;  // 1 / sqrt(variance + epsilon)
};

// Sums or means over rows, for each column.
struct DiceSlopes {
  float* slopes;  // sums of the slopes of the normalized inputs
  float* dots;    // sums of these slopes times the normalized inputs
  float* alpha;   // sums of the slopes of alpha
};

// Sizes of a product. The rows of b and c are `ldb` and `ldc` floats apart; element (i, p) of a is
// a[i * row_step + p * step].
struct SmallShape {
  int64_t m, n, k;
  int64_t row_step, step;
  int64_t ldb, ldc;
  bool adds;  // to c
};

struct SequenceKernels {
  const char* name;
  // Returns the number of floats in the scratch memory for a list of `length` rows.
  int64_t (*attention_memory)(const AttentionForm& form, int64_t length);
  void (*attend)(const AttentionForm& form, const AttentionList& list, float* output,
                 float* memory);
  // Writes the gradient of qkv to `of_qkv`, and adds the gradients of the biases to `sums`.
  void (*attend_gradient)(const AttentionForm& form, const AttentionList& list,
                          const float* of_output, float* of_qkv, const AttentionSums& sums,
                          float* memory);
  // For each row, writes (x - mean) / sqrt(variance + epsilon) * scale + shift.
  void (*norm_rows)(int64_t rows, int64_t width, const float* x, const float* scale,
                    const float* shift, float epsilon, float* output);
  // Writes the gradient of x to `of_x`, and adds the gradients of scale and shift to `of_scale` and
  // `of_shift`.
  void (*norm_rows_gradient)(int64_t rows, int64_t width, const float* x, const float* scale,
                             float epsilon, const float* of_output, float* of_x, float* of_scale,
                             float* of_shift);
  // The functions gated_* compute a gated attention. Each row of a list has the shape [4 width]
  // (see sequence/hstu.h).
  int64_t (*gated_memory)(const AttentionForm& form, int64_t length);
  void (*gated_attend)(const AttentionForm& form, const AttentionList& list, const RowScales& norm,
                       float* attended, float* output, float* memory);
  void (*gated_attend_gradient)(const AttentionForm& form, const AttentionList& list,
                                const RowScales& norm, const float* attended,
                                const float* of_output, float* of_projected, const GatedSums& sums,
                                float* memory);
  // Writes the mean and the sum of squared deviations of each column.
  void (*column_moments)(int64_t rows, int64_t width, const float* x, float* mean, float* squares);
  // Writes the outputs and, if `gates` is not null, the sigmoids of the normalized inputs.
  void (*dice_rows)(int64_t rows, int64_t width, const float* x, const DiceColumns& columns,
                    float* output, float* gates);
  // For each column, adds the sums over the rows to `sums` (DiceSlopes). If `gates` is null,
  // computes the gates again.
  void (*dice_sums)(int64_t rows, int64_t width, const float* x, const DiceColumns& columns,
                    const float* gates, const float* of_output, const DiceSlopes& sums);
  // Writes the gradient of x. `means` contains `slopes` and `dots` (DiceSlopes), divided by the
  // number of rows. If the moments are constants, `means` contains zeros.
  void (*dice_gradient)(int64_t rows, int64_t width, const float* x, const DiceColumns& columns,
                        const float* of_output, const DiceSlopes& means, float* of_x);
  void (*prelu_rows)(int64_t rows, int64_t width, const float* x, const float* alpha,
                     float* output);
  // Writes the gradient of x to `of_x`, and adds the gradient of alpha to `of_alpha`.
  void (*prelu_gradient)(int64_t rows, int64_t width, const float* x, const float* alpha,
                         const float* of_output, float* of_x, float* of_alpha);
  // Replaces n scores by their softmax.
  void (*softmax_list)(int64_t n, float* scores);
  // Writes pairs [count, 2 dim]: each value, and its product with the candidate.
  void (*pair_rows)(int64_t count, int64_t dim, const float* candidate, const float* values,
                    float* pairs);
  // Adds the gradients of the values to `of_values`, and the gradient of the candidate to
  // `of_candidate`.
  void (*pair_rows_gradient)(int64_t count, int64_t dim, const float* candidate,
                             const float* values, const float* of_pairs, float* of_values,
                             float* of_candidate);
  // Adds the vector `row` to each row of x [count, width].
  void (*add_row)(int64_t count, int64_t width, const float* row, float* x);
  // Adds the sum or the weighted sum of the rows of x to the row `sum`.
  void (*sum_rows)(int64_t count, int64_t width, const float* x, float* sum);
  void (*sum_weighted)(int64_t count, int64_t width, const float* weights, const float* x,
                       float* sum);
  // Writes weights[j] * row to row j of x, for each j.
  void (*weigh_rows)(int64_t count, int64_t width, const float* weights, const float* row,
                     float* x);
  // Writes the dot product of each row of x and the vector `row`, plus `shift`.
  void (*dot_rows)(int64_t count, int64_t width, const float* x, const float* row, float shift,
                   float* dots);
  // Computes c [m, n] = a [m, k] b [k, n], or c += a b.
  void (*multiply)(const SmallShape& shape, const float* a, const float* b, float* c);
};

// Returns the kernels for the instruction set `name`, or null if this CPU does not support that
// instruction set.
const SequenceKernels* FindSequenceKernels(const char* name);
// Returns the kernels for the instruction set in MINDSPORE_REC_SIMD, or for the best instruction
// set of this CPU.
const SequenceKernels& ActiveSequenceKernels();

}  // namespace msrec
