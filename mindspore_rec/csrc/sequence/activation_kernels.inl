// SPDX-License-Identifier: Apache-2.0
//
// Dice and PReLU. Part of sequence_loops.inl, whose rules hold here, too.
#pragma once

#include <cstdint>

#include "dense/functions.inl"
#include "sequence/sequence_kernels.h"

namespace msrec {
namespace {

// Writes the mean of each column, and the sum of squared deviations.
void ColumnMoments(int64_t rows, int64_t width, const float* x, float* mean_out,
                   float* squares_out) {
  float* __restrict mean = mean_out;
  float* __restrict squares = squares_out;
  for (int64_t c = 0; c < width; ++c) mean[c] = squares[c] = 0.0f;
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict row = x + r * width;
    for (int64_t c = 0; c < width; ++c) mean[c] += row[c];
  }
  const float share = 1.0f / static_cast<float>(rows);
  for (int64_t c = 0; c < width; ++c) mean[c] *= share;
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict row = x + r * width;
    for (int64_t c = 0; c < width; ++c) {
      const float deviation = row[c] - mean[c];
      squares[c] += deviation * deviation;
    }
  }
}

void DiceRows(int64_t rows, int64_t width, const float* x, const DiceColumns& columns,
              float* output) {
  const float* __restrict alpha = columns.alpha;
  const float* __restrict mean = columns.mean;
  const float* __restrict inverse = columns.inverse;
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict row = x + r * width;
    float* __restrict out = output + r * width;
    for (int64_t c = 0; c < width; ++c) {
      const float p = Sigmoid((row[c] - mean[c]) * inverse[c]);
      out[c] = row[c] * (alpha[c] + p * (1.0f - alpha[c]));
    }
  }
}

// The sums of `DiceSums` for `count` columns from column `first`, in memory that nothing else uses,
// so that the compiler can compute 16 columns at once.
template <int64_t kCount>
MSREC_INLINE void DiceSumsOfColumns(int64_t rows, int64_t width, int64_t first, const float* x,
                                    const DiceColumns& columns, const float* of_output,
                                    const DiceSlopes& sums) {
  float alpha[kCount], mean[kCount], inverse[kCount];
  float slopes[kCount] = {}, dots[kCount] = {}, alphas[kCount] = {};
  for (int64_t c = 0; c < kCount; ++c) {
    alpha[c] = columns.alpha[first + c];
    mean[c] = columns.mean[first + c];
    inverse[c] = columns.inverse[first + c];
  }
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict row = x + r * width + first;
    const float* __restrict g = of_output + r * width + first;
    for (int64_t c = 0; c < kCount; ++c) {
      const float normal = (row[c] - mean[c]) * inverse[c];
      const float p = Sigmoid(normal);
      const float slope = g[c] * row[c] * (1.0f - alpha[c]) * p * (1.0f - p);
      slopes[c] += slope;
      dots[c] += slope * normal;
      alphas[c] += g[c] * row[c] * (1.0f - p);
    }
  }
  for (int64_t c = 0; c < kCount; ++c) {
    sums.slopes[first + c] += slopes[c];
    sums.dots[first + c] += dots[c];
    sums.alpha[first + c] += alphas[c];
  }
}

// Adds to the sums of the slopes of normalized inputs, of these slopes times normalized inputs, and
// of the slopes of alpha.
void DiceSums(int64_t rows, int64_t width, const float* x, const DiceColumns& columns,
              const float* of_output, const DiceSlopes& sums) {
  int64_t c = 0;
  for (; c + 16 <= width; c += 16) {
    DiceSumsOfColumns<16>(rows, width, c, x, columns, of_output, sums);
  }
  if (c + 8 <= width) {
    DiceSumsOfColumns<8>(rows, width, c, x, columns, of_output, sums);
    c += 8;
  }
  for (; c < width; ++c) DiceSumsOfColumns<1>(rows, width, c, x, columns, of_output, sums);
}

// Writes the gradient of the inputs, given the means of the first two sums; 0 if the moments are
// not of this batch.
void DiceGradient(int64_t rows, int64_t width, const float* x, const DiceColumns& columns,
                  const float* of_output, const DiceSlopes& means, float* of_x) {
  const float* __restrict alpha = columns.alpha;
  const float* __restrict mean = columns.mean;
  const float* __restrict inverse = columns.inverse;
  const float* __restrict slope_means = means.slopes;
  const float* __restrict dots = means.dots;
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict row = x + r * width;
    const float* __restrict g = of_output + r * width;
    float* __restrict out = of_x + r * width;
    for (int64_t c = 0; c < width; ++c) {
      const float normal = (row[c] - mean[c]) * inverse[c];
      const float p = Sigmoid(normal);
      const float slope = g[c] * row[c] * (1.0f - alpha[c]) * p * (1.0f - p);
      out[c] = g[c] * (alpha[c] + p * (1.0f - alpha[c])) +
               inverse[c] * (slope - slope_means[c] - normal * dots[c]);
    }
  }
}

void PReluRows(int64_t rows, int64_t width, const float* x, const float* alpha_in, float* output) {
  const float* __restrict alpha = alpha_in;
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict row = x + r * width;
    float* __restrict out = output + r * width;
    for (int64_t c = 0; c < width; ++c) out[c] = row[c] > 0.0f ? row[c] : alpha[c] * row[c];
  }
}

// Writes the gradient of the inputs, and adds to the gradient of alpha.
void PReluGradient(int64_t rows, int64_t width, const float* x, const float* alpha_in,
                   const float* of_output, float* of_x, float* of_alpha) {
  const float* __restrict alpha = alpha_in;
  float* __restrict alphas = of_alpha;
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict row = x + r * width;
    const float* __restrict g = of_output + r * width;
    float* __restrict out = of_x + r * width;
    for (int64_t c = 0; c < width; ++c) {
      out[c] = row[c] > 0.0f ? g[c] : alpha[c] * g[c];
      alphas[c] += row[c] > 0.0f ? 0.0f : g[c] * row[c];
    }
  }
}

}  // namespace
}  // namespace msrec
