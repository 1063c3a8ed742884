// SPDX-License-Identifier: Apache-2.0
//
// The gradient of a target attention.
#pragma once

#include <cstdint>
#include <vector>

#include "sequence/lists.h"
#include "sequence/target_form.h"
#include "util/thread_pool.h"

namespace msrec {

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
