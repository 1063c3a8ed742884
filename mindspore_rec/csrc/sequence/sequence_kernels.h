// SPDX-License-Identifier: Apache-2.0
//
// The loops over one list, for each instruction set. All sets give the same bits.
#pragma once

#include <cstdint>

#include "sequence/attention_form.h"

namespace msrec {

// Partial sums of one task, and memory of its loops.
struct AttentionSums {
  float* by_distance;  // [distances]
  float* by_time;      // [kTimeLanes, buckets]: of every 16th key each
};
constexpr int64_t kTimeLanes = 16;

// One list: its first row in each matrix, and the times of its rows.
struct AttentionList {
  int64_t length;
  const float* qkv;
  const int64_t* times;
};

struct SequenceKernels {
  const char* name;
  // Returns the floats of memory that the loops over a list of `length` rows need.
  int64_t (*attention_memory)(const AttentionForm& form, int64_t length);
  void (*attend)(const AttentionForm& form, const AttentionList& list, float* output,
                 float* memory);
  // Writes of_qkv and adds to the sums.
  void (*attend_gradient)(const AttentionForm& form, const AttentionList& list,
                          const float* of_output, float* of_qkv, const AttentionSums& sums,
                          float* memory);
  // Writes (x - mean) / sqrt(variance + epsilon) * scale + shift of each row.
  void (*norm_rows)(int64_t rows, int64_t width, const float* x, const float* scale,
                    const float* shift, float epsilon, float* output);
  // Writes the gradient of x, and adds to the gradients of scale and shift.
  void (*norm_rows_gradient)(int64_t rows, int64_t width, const float* x, const float* scale,
                             float epsilon, const float* of_output, float* of_x, float* of_scale,
                             float* of_shift);
};

// The set with this name, or null if this CPU lacks it.
const SequenceKernels* FindSequenceKernels(const char* name);
// The set that the environment selects (MINDSPORE_REC_SIMD), or the fastest.
const SequenceKernels& ActiveSequenceKernels();

}  // namespace msrec
