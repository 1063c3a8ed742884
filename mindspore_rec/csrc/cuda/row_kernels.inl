// SPDX-License-Identifier: Apache-2.0
//
// Kernels that treat each number for itself.
#pragma once

#include "cuda/kernel_places.inl"

namespace msrec {
namespace kernels {

MSREC_KERNEL(Activate, ActivateArguments) {
  const Place at = PlaceOf(i, a.width);
  float* x = At(a.x, at);
  *x = ActivationOf(a.activation, a.bias == nullptr ? *x : *x + a.bias[at.column]);
}

MSREC_KERNEL(Copy, MapArguments) {
  const Place at = PlaceOf(i, a.width);
  *At(a.to, at) = *At(a.from, at);
}

MSREC_KERNEL(Clear, ClearArguments) { *At(a.x, PlaceOf(i, a.width)) = 0.0f; }

MSREC_KERNEL(Divide, DivideArguments) { a.x[i] /= a.divisor; }

MSREC_KERNEL(WidenBfloat16, HalfArguments) {
  const Place at = PlaceOf(i, a.width);
  *At(a.x, at) = Widened(*At(a.half, at));
}

MSREC_KERNEL(Spread, MapArguments) {
  const Place at = PlaceOf(i, a.width);
  *At(a.to, at) = *RowAt(a.from, at.row);
}

MSREC_KERNEL(GeluOf, MapArguments) {
  const Place at = PlaceOf(i, a.width);
  *At(a.to, at) = Gelu(*At(a.from, at));
}

MSREC_KERNEL(GeluGradient, MapArguments) {
  const Place at = PlaceOf(i, a.width);
  *At(a.to, at) *= GeluSlope(*At(a.from, at));
}

MSREC_KERNEL(RoundBfloat16, HalfArguments) {
  const Place at = PlaceOf(i, a.width);
  *At(a.half, at) = static_cast<uint16_t>(Rounded(*At(a.x, at)));
}

MSREC_KERNEL(RoundToFloat, MapArguments) {
  const Place at = PlaceOf(i, a.width);
  *At(a.to, at) = AsFloat(Rounded(*At(a.from, at)) << 16);
}

MSREC_KERNEL(MultiplyAdd, MultiplyAddArguments) {
  const Place at = PlaceOf(i, a.width);
  *At(a.output, at) = *At(a.a, at) * *At(a.b, at) + *At(a.c, at);
}

MSREC_KERNEL(AddProduct, AddProductArguments) {
  const Place at = PlaceOf(i, a.width);
  *At(a.output, at) += *At(a.a, at) * *At(a.b, at);
}

MSREC_KERNEL(MultiplyMasks, MultiplyMasksArguments) {
  const Place at = PlaceOf(i, a.width);
  float* x = At(a.x, at);
  *x = Masked(a.masks, at, a.width, *x);
}

MSREC_KERNEL(Add, MapArguments) {
  const Place at = PlaceOf(i, a.width);
  *At(a.to, at) += *At(a.from, at);
}

}  // namespace kernels
}  // namespace msrec
