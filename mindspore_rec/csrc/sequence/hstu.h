// SPDX-License-Identifier: Apache-2.0
//
// The inner part of an HSTU block, and its gradient. A projected row [4 width] consists of queries,
// keys, values and gates. The SiLU is applied to queries, keys, values and gates. The rows of the
// attention are normalized and then multiplied by the gates. See sequence/attention.h.
#pragma once

#include "sequence/attention_form.h"
#include "sequence/lists.h"
#include "sequence/sequence_kernels.h"
#include "util/thread_pool.h"

namespace msrec {

// Writes the output [N, width]. Also writes the result of the attention to `attended` [N, width];
// the computation of the gradient needs `attended`.
void GatedAttend(const AttentionForm& form, const RowScales& norm, const Lists& lists,
                 const float* projected, float* attended, float* output, ThreadPool* pool);

struct GatedGradient {
  float* projected;    // [N, 4 width]
  float* by_distance;  // [distances], if the form has them
  float* by_time;      // [buckets]
  float* scale;        // [width]
  float* shift;        // [width]
};

// Inputs and outputs of the forward pass.
struct GatedRows {
  const float* projected;
  const float* attended;
};

void GatedAttendGradient(const AttentionForm& form, const RowScales& norm, const Lists& lists,
                         const GatedRows& rows, const float* of_output,
                         const GatedGradient& gradient, ThreadPool* pool);

}  // namespace msrec
