// SPDX-License-Identifier: Apache-2.0
//
// Loops over the pairs of a row's vectors: their dot products, and the products summed over pairs.
// Included by elementwise.inl, whose rules hold here.
#pragma once

#include "dense/elementwise.h"
#include "dense/small_product.inl"

namespace msrec {
namespace {

// Position of the first product of vector i with those before it.
MSREC_INLINE int64_t TriangleRow(int64_t i, bool diagonal) {
  return diagonal ? i * (i + 1) / 2 : i * (i - 1) / 2;
}

// target [dim, ld] = the transposed of x [vectors, dim]
MSREC_INLINE void Transpose(int64_t vectors, int64_t dim, const float* x, float* target,
                            int64_t ld) {
  for (int64_t i = 0; i < vectors; ++i) {
    for (int64_t d = 0; d < dim; ++d) target[d * ld + i] = x[i * dim + d];
  }
}

// Products of kRows vectors, from the first-th on, with those before them. Whole vectors are
// written: what is behind a triangle's row is overwritten by the next row, which is why columns go
// from the right to the left.
template <int kRows>
MSREC_INLINE void PairRows(int64_t first, int64_t dim, bool diagonal, const float* x,
                           const float* columns, int64_t ld, float* products) {
  using V = typename Lanes<kLanes>::Type;
  const int64_t width = first + kRows - (diagonal ? 0 : 1);
  for (int64_t j = (width - 1) / kLanes * kLanes; j >= 0; j -= kLanes) {
    V sums[kRows] = {};
    for (int64_t d = 0; d < dim; ++d) {
      V column;
      Read(columns + d * ld + j, &column);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) sums[r] += x[(first + r) * dim + d] * column;
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) Write(sums[r], products + TriangleRow(first + r, diagonal) + j);
  }
}

void PairDots(int64_t rows, int64_t vectors, int64_t dim, bool diagonal, Block x, float* scratch,
              Block output) {
  const int64_t ld = PairScratch::Ld(vectors);
  const int64_t count = TriangleRow(vectors, diagonal);
  float* columns = scratch;
  float* products = scratch + dim * ld;
  for (int64_t i = 0; i < dim * ld; ++i) columns[i] = 0.0f;
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x.data + r * x.ld;
    Transpose(vectors, dim, row, columns, ld);
    int64_t i = 0;
    for (; i + 8 <= vectors; i += 8) PairRows<8>(i, dim, diagonal, row, columns, ld, products);
    if (i + 4 <= vectors) {
      PairRows<4>(i, dim, diagonal, row, columns, ld, products);
      i += 4;
    }
    for (; i < vectors; ++i) PairRows<1>(i, dim, diagonal, row, columns, ld, products);
    __builtin_memcpy(output.data + r * output.ld, products,
                     sizeof(float) * static_cast<size_t>(count));
  }
}

void PairDotsGradient(int64_t rows, int64_t vectors, int64_t dim, bool diagonal, Block x,
                      Block output_gradient, float* scratch, bool adds, Block gradient) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* of_products = output_gradient.data + r * output_gradient.ld;
    // The symmetric matrix of the products' gradients: a square x x has twice its own.
    for (int64_t i = 0; i < vectors; ++i) {
      const float* triangle = of_products + TriangleRow(i, diagonal);
      for (int64_t j = 0; j < i; ++j) scratch[i * vectors + j] = triangle[j];
      for (int64_t j = 0; j < i; ++j) scratch[j * vectors + i] = triangle[j];
      scratch[i * vectors + i] = diagonal ? 2.0f * triangle[i] : 0.0f;
    }
    SmallProduct(vectors, dim, vectors, {scratch, vectors, 1}, x.data + r * x.ld, dim, adds,
                 gradient.data + r * gradient.ld, dim);
  }
}

// ---------------------------------------------------------------- sums over all pairs

void PairSums(int64_t rows, int64_t fields, int64_t dim, Block x, Block output) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x.data + r * x.ld;
    float* sums = output.data + r * output.ld;
    ForColumns(dim, [&](auto lanes, int64_t d) {
      using V = typename decltype(lanes)::Type;
      V before = V{}, sum = V{};  // each field times the sum of those before it
      for (int64_t f = 0; f < fields; ++f) {
        V unit;
        Read(row + f * dim + d, &unit);
        sum += unit * before;
        before += unit;
      }
      Write(sum, sums + d);
    });
  }
}

void PairSumsGradient(int64_t rows, int64_t fields, int64_t dim, Block x, Block output_gradient,
                      bool adds, Block gradient) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x.data + r * x.ld;
    const float* of_sums = output_gradient.data + r * output_gradient.ld;
    float* target = gradient.data + r * gradient.ld;
    ForColumns(dim, [&](auto lanes, int64_t d) {
      using V = typename decltype(lanes)::Type;
      V total = V{}, slope;
      Read(of_sums + d, &slope);
      for (int64_t f = 0; f < fields; ++f) {
        V unit;
        Read(row + f * dim + d, &unit);
        total += unit;
      }
      for (int64_t f = 0; f < fields; ++f) {
        V unit, below = V{};
        Read(row + f * dim + d, &unit);
        if (adds) Read(target + f * dim + d, &below);
        below += slope * (total - unit);
        Write(below, target + f * dim + d);
      }
    });
  }
}

void RowSums(int64_t rows, int64_t width, Block x, Block output) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x.data + r * x.ld;
    float partial[16] = {};
    for (int64_t j = 0; j + 16 <= width; j += 16) {
      for (int i = 0; i < 16; ++i) partial[i] += row[j + i];
    }
    const int64_t rest = width / 16 * 16;
    for (int64_t i = 0; rest + i < width; ++i) partial[i] += row[rest + i];
    output.data[r * output.ld] = SumOf16(partial);
  }
}

}  // namespace
}  // namespace msrec
