// SPDX-License-Identifier: Apache-2.0
//
// Kernels of the pairs of a row's vectors.
#pragma once

#include "cuda/kernel_places.inl"

namespace msrec {
namespace kernels {

// Position of the first product of vector i with those before it.
MSREC_INLINE int64_t TriangleRow(int64_t i, bool diagonal) {
  return diagonal ? i * (i + 1) / 2 : i * (i - 1) / 2;
}

// The vectors of a pair's number. The root may be off by one where float32 has no such number.
MSREC_INLINE Place PairOf(int64_t pair, bool diagonal) {
  const float root = SquareRoot(1.0f + 8.0f * static_cast<float>(pair));
  int64_t i = static_cast<int64_t>(0.5f * (diagonal ? root - 1.0f : root + 1.0f));
  while (TriangleRow(i, diagonal) > pair) --i;
  while (TriangleRow(i + 1, diagonal) <= pair) ++i;
  return {i, pair - TriangleRow(i, diagonal)};
}

// One thread a pair of a row.
MSREC_KERNEL(PairDots, PairArguments) {
  const Place at = PlaceOf(i, a.pairs);
  const Place pair = PairOf(at.column, a.diagonal);
  const float* x = RowAt(a.x, at.row) + pair.row * a.dim;
  const float* y = RowAt(a.x, at.row) + pair.column * a.dim;
  float dot = 0.0f;
  for (int64_t d = 0; d < a.dim; ++d) dot += x[d] * y[d];
  *At(a.output, at) = dot;
}

// One thread a unit of a row's vector. The products' gradients are a symmetric matrix; a square
// x x has twice its own.
MSREC_KERNEL(PairDotsGradient, PairArguments) {
  const Place at = PlaceOf(i, a.vectors * a.dim);
  const Place unit = PlaceOf(at.column, a.dim);  // vector and unit
  const float* of_products = RowAt(a.output, at.row);
  const float* x = RowAt(a.x, at.row) + unit.column;
  float* target = At(a.gradient, at);
  const int64_t vector = unit.row;
  const float* triangle = of_products + TriangleRow(vector, a.diagonal);
  float below = a.adds ? *target : 0.0f;
  for (int64_t j = 0; j < vector; ++j) below += triangle[j] * x[j * a.dim];
  below += (a.diagonal ? 2.0f * triangle[vector] : 0.0f) * x[vector * a.dim];
  for (int64_t j = vector + 1; j < a.vectors; ++j) {
    below += of_products[TriangleRow(j, a.diagonal) + vector] * x[j * a.dim];
  }
  *target = below;
}

// One thread a unit of a row.
MSREC_KERNEL(PairSums, PairArguments) {
  const Place at = PlaceOf(i, a.dim);
  const float* x = At(a.x, at);
  float before = 0.0f, sum = 0.0f;  // each field times the sum of those before it
  for (int64_t f = 0; f < a.vectors; ++f) {
    const float unit = x[f * a.dim];
    sum += unit * before;
    before += unit;
  }
  *At(a.output, at) = sum;
}

// One thread a unit of a row.
MSREC_KERNEL(PairSumsGradient, PairArguments) {
  const Place at = PlaceOf(i, a.dim);
  const float* x = At(a.x, at);
  float* target = At(a.gradient, at);
  const float slope = *At(a.output, at);
  float total = 0.0f;
  for (int64_t f = 0; f < a.vectors; ++f) total += x[f * a.dim];
  for (int64_t f = 0; f < a.vectors; ++f) {
    Put(slope * (total - x[f * a.dim]), a.adds, target + f * a.dim);
  }
}

// One thread a row.
MSREC_KERNEL(RowSums, MapArguments) {
  const float* x = RowAt(a.from, i);
  float sum = 0.0f;
  for (int64_t j = 0; j < a.width; ++j) sum += x[j];
  *RowAt(a.to, i) = sum;
}

}  // namespace kernels
}  // namespace msrec
