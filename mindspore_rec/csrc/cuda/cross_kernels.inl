// SPDX-License-Identifier: Apache-2.0
//
// Kernels of cross networks. Products of rows and weights are the device's.
#pragma once

#include "cuda/kernel_places.inl"

namespace msrec {
namespace kernels {

MSREC_KERNEL(CrossCombineGradient, CrossCombineArguments) {
  const Place at = PlaceOf(i, a.width);
  const float g = *At(a.gradient, at);
  const float map = *At(a.t, at);
  Put(g * *At(a.x0, at), a.adds_t, At(a.of_t, at));
  if (a.of_x.data == nullptr) {
    Put(g * map + g, a.adds_x0, At(a.of_x0, at));
    return;
  }
  Put(g * map, a.adds_x0, At(a.of_x0, at));
  Put(g, a.adds_x, At(a.of_x, at));
}

MSREC_INLINE float NextAlpha(float alpha, float product, float constant) {
  return alpha + alpha * product + constant;
}

MSREC_KERNEL(CrossAlphas, CrossAlphasArguments) {
  const float* products = RowAt(a.products, i);
  float alpha = 1.0f;
  for (int64_t k = 0; k < a.layers; ++k) alpha = NextAlpha(alpha, products[k], a.constants[k]);
  a.alphas[i] = alpha;
}

MSREC_KERNEL(CrossOutput, CrossOutputArguments) {
  const Place at = PlaceOf(i, a.width);
  *At(a.output, at) = a.alphas[at.row] * *At(a.x, at) + a.bias[at.column];
}

// Neighbouring threads read neighbouring columns.
MSREC_KERNEL(RowDots, RowDotsArguments) {
  const Place at = PlaceOf(i, kDotParts);
  const float* x = RowAt(a.a, at.row);
  const float* y = RowAt(a.b, at.row);
  float dot = 0.0f;
  for (int64_t j = at.column; j < a.width; j += kDotParts) dot += x[j] * y[j];
  a.parts[i] = dot;
}

MSREC_KERNEL(CrossAlphasGradient, CrossAlphasGradientArguments) {
  const float* products = RowAt(a.products, i);
  float* of_products = a.of_products + i * a.layers;  // the alphas before they are these
  float* of_constants = a.of_constants + i * a.layers;
  float alpha = 1.0f;
  for (int64_t k = 0; k < a.layers; ++k) {
    of_products[k] = alpha;
    alpha = NextAlpha(alpha, products[k], a.constants[k]);
  }
  a.alphas[i] = alpha;
  float of_alpha = 0.0f;
  for (int64_t part = 0; part < kDotParts; ++part) of_alpha += a.dots[i * kDotParts + part];
  for (int64_t k = a.layers; k-- > 0;) {
    of_constants[k] = of_alpha;
    const float exact = of_alpha * of_products[k];
    of_products[k] = a.rounds ? AsFloat(Rounded(exact) << 16) : exact;
    of_alpha = of_alpha + of_alpha * products[k];
  }
}

MSREC_KERNEL(CrossInputGradient, CrossInputGradientArguments) {
  const Place at = PlaceOf(i, a.width);
  const float* of_products = a.of_products + at.row * a.layers;
  float* target = At(a.of_x, at);
  float below = a.alphas[at.row] * *At(a.gradient, at);
  if (a.adds) below = *target + below;
  for (int64_t k = a.layers; k-- > 0;) {
    below += of_products[k] * a.weight[k * a.width + at.column];
  }
  *target = below;
}

}  // namespace kernels
}  // namespace msrec
