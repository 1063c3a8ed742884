// SPDX-License-Identifier: Apache-2.0
//
// The loops of a target attention over the rows of one list. Part of sequence_loops.inl, whose
// rules hold here, too.
#pragma once

#include <cstdint>

#include "dense/small_product.inl"
#include "sequence/sequence_kernels.h"

namespace msrec {
namespace {

// Writes pairs [count, 2 dim]: each value, and its product with the candidate.
void PairRows(int64_t count, int64_t dim, const float* candidate_in, const float* values,
              float* pairs) {
  const float* __restrict candidate = candidate_in;
  for (int64_t j = 0; j < count; ++j) {
    const float* __restrict value = values + j * dim;
    float* __restrict pair = pairs + j * 2 * dim;
    for (int64_t c = 0; c < dim; ++c) pair[c] = value[c];
    for (int64_t c = 0; c < dim; ++c) pair[dim + c] = value[c] * candidate[c];
  }
}

// Adds to the gradients of the values and of the candidate.
void PairRowsGradient(int64_t count, int64_t dim, const float* candidate_in, const float* values,
                      const float* of_pairs, float* of_values, float* of_candidate_in) {
  const float* __restrict candidate = candidate_in;
  float* __restrict of_candidate = of_candidate_in;
  for (int64_t j = 0; j < count; ++j) {
    const float* __restrict value = values + j * dim;
    const float* __restrict g = of_pairs + j * 2 * dim;
    float* __restrict of_value = of_values + j * dim;
    for (int64_t c = 0; c < dim; ++c) {
      of_value[c] += g[c] + g[dim + c] * candidate[c];
      of_candidate[c] += g[dim + c] * value[c];
    }
  }
}

void AddRow(int64_t count, int64_t width, const float* row_in, float* x) {
  const float* __restrict row = row_in;
  for (int64_t j = 0; j < count; ++j) {
    float* __restrict to = x + j * width;
    for (int64_t c = 0; c < width; ++c) to[c] += row[c];
  }
}

void SumRows(int64_t count, int64_t width, const float* x, float* sum_in) {
  float* __restrict sum = sum_in;
  for (int64_t j = 0; j < count; ++j) {
    const float* __restrict from = x + j * width;
    for (int64_t c = 0; c < width; ++c) sum[c] += from[c];
  }
}

void WeighRows(int64_t count, int64_t width, const float* weights, const float* row_in, float* x) {
  const float* __restrict row = row_in;
  for (int64_t j = 0; j < count; ++j) {
    float* __restrict to = x + j * width;
    for (int64_t c = 0; c < width; ++c) to[c] = weights[j] * row[c];
  }
}

// Adds the weighted sum of the rows.
void SumWeighted(int64_t count, int64_t width, const float* weights, const float* x,
                 float* sum_in) {
  float* __restrict sum = sum_in;
  for (int64_t j = 0; j < count; ++j) {
    const float* __restrict from = x + j * width;
    for (int64_t c = 0; c < width; ++c) sum[c] += weights[j] * from[c];
  }
}

// Writes, for each row of x, its product with `row`, plus `shift`.
void DotRows(int64_t count, int64_t width, const float* x, const float* row, float shift,
             float* dots) {
  for (int64_t j = 0; j < count; ++j) dots[j] = Dot(width, x + j * width, row) + shift;
}

// c [m, n] = a [m, k] b [k, n], or += it; element (i, p) of a is a[i row_step + p step].
void MultiplySmall(const SmallShape& shape, const float* a, const float* b, float* c) {
  SmallProduct(shape.m, shape.n, shape.k, {a, shape.row_step, shape.step}, b, shape.ldb, shape.adds,
               c, shape.ldc);
}

}  // namespace
}  // namespace msrec
