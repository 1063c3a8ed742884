// SPDX-License-Identifier: Apache-2.0
//
// Kernels of a mixture of experts: sums of a row's vectors, weighed by its gates.
#pragma once

#include "cuda/kernel_places.inl"

namespace msrec {
namespace kernels {

// One thread a unit of a row's task.
MSREC_KERNEL(Mix, MixArguments) {
  const Place at = PlaceOf(i, a.tasks * a.width);
  const Place unit = PlaceOf(at.column, a.width);  // task and unit
  const float* gates = RowAt(a.gates, at.row) + unit.row * a.experts;
  const float* units = RowAt(a.units, at.row) + unit.column;
  float sum = 0.0f;
  for (int64_t e = 0; e < a.experts; ++e) sum += gates[e] * units[e * a.width];
  *At(a.output, at) = sum;
}

// One thread a unit of a row's expert.
MSREC_KERNEL(MixUnitsGradient, MixArguments) {
  const Place at = PlaceOf(i, a.experts * a.width);
  const Place unit = PlaceOf(at.column, a.width);  // expert and unit
  const float* gates = RowAt(a.gates, at.row) + unit.row;
  const float* of_tasks = RowAt(a.output, at.row) + unit.column;
  float* target = At(a.gradient, at);
  float below = a.adds ? *target : 0.0f;
  for (int64_t t = 0; t < a.tasks; ++t) below += gates[t * a.experts] * of_tasks[t * a.width];
  *target = below;
}

// One thread a gate of a row.
MSREC_KERNEL(MixGatesGradient, MixArguments) {
  const Place at = PlaceOf(i, a.tasks * a.experts);
  const Place gate = PlaceOf(at.column, a.experts);  // task and expert
  const float* of_task = RowAt(a.output, at.row) + gate.row * a.width;
  const float* units = RowAt(a.units, at.row) + gate.column * a.width;
  float dot = 0.0f;
  for (int64_t j = 0; j < a.width; ++j) dot += of_task[j] * units[j];
  Put(dot, a.adds, At(a.gradient, at));
}

}  // namespace kernels
}  // namespace msrec
