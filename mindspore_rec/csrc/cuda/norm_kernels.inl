// SPDX-License-Identifier: Apache-2.0
//
// Kernels of batch normalization.
#pragma once

#include "cuda/kernel_places.inl"

namespace msrec {
namespace kernels {

MSREC_KERNEL(ChunkSquares, ChunkSquaresArguments) {
  const Place at = PlaceOf(i, a.chunks.width);
  const float mean = a.mean[at.column];
  float sum = 0.0f;
  ForRows(
      a.chunks, at.row, [&](int64_t r) { return *At(a.x, {r, at.column}); },
      [&](int64_t, float x) { sum += (x - mean) * (x - mean); });
  a.partial[i] = sum;
}

MSREC_KERNEL(Normalize, NormalizeArguments) {
  const Place at = PlaceOf(i, a.width);
  const int64_t j = at.column;
  const float normalized = (*At(a.x, at) - a.mean[j]) * a.scale[j] + a.beta[j];
  *At(a.output, at) = Masked(a.masks, at, a.width, ActivationOf(a.activation, normalized));
}

struct OutputOfNormalized {
  float x, y, g;
};

MSREC_KERNEL(NormalizedGradient, NormalizedGradientArguments) {
  const Place at = PlaceOf(i, a.chunks.width);
  const float mean = a.mean[at.column];
  float sum = 0.0f, product = 0.0f;
  ForRows(
      a.chunks, at.row,
      [&](int64_t r) {
        const Place here = {r, at.column};
        const float g = Masked(a.masks, here, a.chunks.width, *At(a.gradient, here));
        return OutputOfNormalized{*At(a.x, here), *At(a.output, here), g};
      },
      [&](int64_t r, const OutputOfNormalized& of) {
        const float below = GradientOf(a.activation, of.y, of.g);
        sum += below;
        product += below * (of.x - mean);
        *At(a.result, {r, at.column}) = below;
      });
  a.sums[i] = sum;
  a.products[i] = product;
}

MSREC_KERNEL(NormalizeGradient, NormalizeGradientArguments) {
  const Place at = PlaceOf(i, a.width);
  const int64_t j = at.column;
  float* g = At(a.gradient, at);
  *g = a.scale[j] * (*g - a.shift[j] - (*At(a.x, at) - a.mean[j]) * a.slope[j]);
}

}  // namespace kernels
}  // namespace msrec
