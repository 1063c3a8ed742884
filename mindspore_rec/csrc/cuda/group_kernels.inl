// SPDX-License-Identifier: Apache-2.0
//
// Kernels of groups of a row's columns: softmax and gates.
#pragma once

#include "cuda/kernel_places.inl"

namespace msrec {
namespace kernels {

MSREC_KERNEL(Softmax, SoftmaxArguments) {
  const Place at = PlaceOf(i, a.groups);
  float* v = RowAt(a.x, at.row) + at.column * a.group;
  float most = v[0];
  for (int64_t j = 1; j < a.group; ++j) most = v[j] > most ? v[j] : most;
  float total = 0.0f;
  for (int64_t j = 0; j < a.group; ++j) {
    const float power = Exp(v[j] - most);
    v[j] = power;
    total += power;
  }
  const float scale = 1.0f / total;
  for (int64_t j = 0; j < a.group; ++j) v[j] *= scale;
}

MSREC_KERNEL(SoftmaxGradient, SoftmaxArguments) {
  const Place at = PlaceOf(i, a.groups);
  const float* y = RowAt(a.x, at.row) + at.column * a.group;
  float* g = RowAt(a.gradient, at.row) + at.column * a.group;
  float dot = 0.0f;
  for (int64_t j = 0; j < a.group; ++j) dot += y[j] * g[j];
  for (int64_t j = 0; j < a.group; ++j) g[j] = y[j] * (g[j] - dot);
}

MSREC_KERNEL(ScaleGroups, ScaleGroupsArguments) {
  const Place at = PlaceOf(i, a.width);
  const int64_t group = PlaceOf(at.column, a.group).row;
  Put(RowAt(a.scales, at.row)[group] * *At(a.x, at), a.adds, At(a.target, at));
}

MSREC_KERNEL(GroupDots, GroupDotsArguments) {
  const Place at = PlaceOf(i, a.groups);
  const float* x = RowAt(a.a, at.row) + at.column * a.group;
  const float* y = RowAt(a.b, at.row) + at.column * a.group;
  float dot = 0.0f;
  for (int64_t j = 0; j < a.group; ++j) dot += x[j] * y[j];
  Put(dot, a.adds, At(a.target, at));
}

MSREC_KERNEL(ScaledSums, ScaledSumsArguments) {
  const Place at = PlaceOf(i, a.chunks.width);
  const int64_t group = PlaceOf(at.column, a.group).row;
  float sum = 0.0f;
  ForRows(
      a.chunks, at.row,
      [&](int64_t r) { return RowAt(a.scales, r)[group] * *At(a.x, {r, at.column}); },
      [&](int64_t, float x) { sum += x; });
  a.partial[i] = sum;
}

}  // namespace kernels
}  // namespace msrec
