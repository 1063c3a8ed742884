// SPDX-License-Identifier: Apache-2.0
//
// Kernels that add up columns.
//
// What is added up over rows is added in chunks of rows whose size follows from the number of rows,
// and chunks in their order: the same bits in each run.
#pragma once

#include "cuda/kernel_places.inl"

namespace msrec {
namespace kernels {

// An activation's output and the gradient of that.
struct OutputAndGradient {
  float y, g;
};

MSREC_KERNEL(ActivationGradient, ActivationGradientArguments) {
  const Place at = PlaceOf(i, a.chunks.width);  // chunk and column
  float sum = 0.0f;
  ForRows(
      a.chunks, at.row,
      [&](int64_t r) {
        const Place here = {r, at.column};
        return OutputAndGradient{*At(a.output, here), *At(a.gradient, here)};
      },
      [&](int64_t r, const OutputAndGradient& of) {
        const float below = GradientOf(a.activation, of.y, of.g);
        *At(a.gradient, {r, at.column}) = below;
        sum += below;
      });
  if (a.partial != nullptr) a.partial[i] = sum;
}

MSREC_KERNEL(HalfActivationGradient, HalfActivationGradientArguments) {
  const Place at = PlaceOf(i, a.chunks.width);
  float sum = 0.0f;
  ForRows(
      a.chunks, at.row,
      [&](int64_t r) {
        const Place here = {r, at.column};
        return OutputAndGradient{Widened(*At(a.output, here)), *At(a.gradient, here)};
      },
      [&](int64_t r, const OutputAndGradient& of) {
        const float below = GradientOf(a.activation, of.y, of.g);
        *At(a.result, {r, at.column}) = static_cast<uint16_t>(Rounded(below));
        sum += below;
      });
  if (a.partial != nullptr) a.partial[i] = sum;
}

MSREC_KERNEL(ChunkSum, ChunkSumArguments) {
  const Place at = PlaceOf(i, a.chunks.width);
  float sum = 0.0f;
  ForRows(
      a.chunks, at.row, [&](int64_t r) { return *At(a.x, {r, at.column}); },
      [&](int64_t, float x) { sum += x; });
  a.partial[i] = sum;
}

// In float64: a batch is one slice on a device, of hundreds of chunks, and the statistics of a
// batch normalization are sums over it.
MSREC_KERNEL(JoinChunks, JoinChunksArguments) {
  double sum = static_cast<double>(a.sums[i]);
  ForRows(
      {a.chunks, 1, a.chunks}, 0, [&](int64_t chunk) { return a.partial[chunk * a.width + i]; },
      [&](int64_t, float x) { sum += static_cast<double>(x); });
  a.sums[i] = static_cast<float>(sum);
}

}  // namespace kernels
}  // namespace msrec
