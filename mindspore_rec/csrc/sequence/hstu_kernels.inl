// SPDX-License-Identifier: Apache-2.0
//
// A gated attention over one list. Part of sequence_loops.inl, whose rules hold here, too.
#pragma once

#include "sequence/attention_kernels.inl"
#include "sequence/norm_kernels.inl"

namespace msrec {
namespace {

MSREC_INLINE float Silu(float x) { return x * Sigmoid(x); }
MSREC_INLINE float SiluSlope(float x) {
  const float sigmoid = Sigmoid(x);
  return sigmoid + x * sigmoid * (1.0f - sigmoid);
}

// Additional memory of the loops, behind the memory of the attention.
struct GateSpace {
  float* activated;     // [length, 3 width]
  float* slopes;        // [length, 3 width]: of the activations; of the gradient
  float* of_activated;  // [length, 3 width]; of the gradient
  float* normal;        // [length, width]
  float* of_normal;     // [length, width]
  float* of_attended;   // [length, width]
};

int64_t GatedMemory(const AttentionForm& form, int64_t length) {
  return AttentionMemory(form, length) + 12 * length * form.heads * form.dim;
}

MSREC_INLINE GateSpace GateSpaceOf(const AttentionForm& form, int64_t length, float* memory) {
  const int64_t size = length * form.heads * form.dim;
  GateSpace space;
  space.activated = memory + AttentionMemory(form, length);
  space.slopes = space.activated + 3 * size;
  space.of_activated = space.slopes + 3 * size;
  space.normal = space.of_activated + 3 * size;
  space.of_normal = space.normal + size;
  space.of_attended = space.of_normal + size;
  return space;
}

// Writes the SiLU of the first three parts of each row.
MSREC_INLINE void ActivateParts(int64_t length, int64_t width, const float* projected,
                                float* activated) {
  for (int64_t i = 0; i < length; ++i) {
    const float* __restrict from = projected + i * 4 * width;
    float* __restrict to = activated + i * 3 * width;
    for (int64_t c = 0; c < 3 * width; ++c) to[c] = Silu(from[c]);
  }
}

// Writes the SiLU and its slope.
MSREC_INLINE void ActivatePartsAndSlopes(int64_t length, int64_t width, const float* projected,
                                         float* activated, float* slopes) {
  for (int64_t i = 0; i < length; ++i) {
    const float* __restrict from = projected + i * 4 * width;
    float* __restrict to = activated + i * 3 * width;
    float* __restrict slope = slopes + i * 3 * width;
    for (int64_t c = 0; c < 3 * width; ++c) {
      const float sigmoid = Sigmoid(from[c]);
      to[c] = from[c] * sigmoid;
      slope[c] = sigmoid + from[c] * sigmoid * (1.0f - sigmoid);
    }
  }
}

void GatedAttendList(const AttentionForm& form, const AttentionList& list, const RowScales& norm,
                     float* attended, float* output, float* memory) {
  const int64_t width = form.heads * form.dim;
  const GateSpace space = GateSpaceOf(form, list.length, memory);
  ActivateParts(list.length, width, list.qkv, space.activated);
  AttendList(form, {list.length, space.activated, list.times}, attended, memory);
  NormRows(list.length, width, attended, norm.scale, norm.shift, norm.epsilon, output);
  for (int64_t i = 0; i < list.length; ++i) {
    const float* __restrict gate = list.qkv + i * 4 * width + 3 * width;
    float* __restrict out = output + i * width;
    for (int64_t c = 0; c < width; ++c) out[c] *= Silu(gate[c]);
  }
}

void GatedAttendListGradient(const AttentionForm& form, const AttentionList& list,
                             const RowScales& norm, const float* attended, const float* of_output,
                             float* of_projected, const GatedSums& sums, float* memory) {
  const int64_t width = form.heads * form.dim;
  const GateSpace space = GateSpaceOf(form, list.length, memory);
  // Whole rows come first: the processor fetches them ahead, but not the gates, a piece of each
  // row.
  ActivatePartsAndSlopes(list.length, width, list.qkv, space.activated, space.slopes);
  NormRows(list.length, width, attended, norm.scale, norm.shift, norm.epsilon, space.normal);
  for (int64_t i = 0; i < list.length; ++i) {
    const float* __restrict gate = list.qkv + i * 4 * width + 3 * width;
    const float* __restrict g = of_output + i * width;
    const float* __restrict normal = space.normal + i * width;
    float* __restrict of_gate = of_projected + i * 4 * width + 3 * width;
    float* __restrict of_normal = space.of_normal + i * width;
    for (int64_t c = 0; c < width; ++c) {
      of_gate[c] = g[c] * normal[c] * SiluSlope(gate[c]);
      of_normal[c] = g[c] * Silu(gate[c]);
    }
  }
  NormRowsGradient(list.length, width, attended, norm.scale, norm.epsilon, space.of_normal,
                   space.of_attended, sums.scale, sums.shift);
  AttendListGradient(form, {list.length, space.activated, list.times}, space.of_attended,
                     space.of_activated, sums.biases, memory);
  for (int64_t i = 0; i < list.length; ++i) {
    const float* __restrict slope = space.slopes + i * 3 * width;
    const float* __restrict g = space.of_activated + i * 3 * width;
    float* __restrict out = of_projected + i * 4 * width;
    for (int64_t c = 0; c < 3 * width; ++c) out[c] = g[c] * slope[c];
  }
}

}  // namespace
}  // namespace msrec
