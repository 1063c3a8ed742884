// SPDX-License-Identifier: Apache-2.0
//
// Dice and PReLU. Part of sequence_loops.inl, whose rules hold here, too.
#pragma once

#include <cstdint>

#include "dense/functions.inl"
#include "sequence/sequence_kernels.h"

namespace msrec {
namespace {

template <int64_t kColumns>
struct Count {
  static constexpr int64_t kCount = kColumns;
};

// Calls fn(count, first) for columns [first, first + count), 16 or 8 columns at a time, or 1; a
// function whose sums are local arrays of `count` elements keeps them in registers.
template <typename Fn>
MSREC_INLINE void ForColumnGroups(int64_t width, const Fn& fn) {
  int64_t c = 0;
  for (; c + 16 <= width; c += 16) fn(Count<16>{}, c);
  if (c + 8 <= width) {
    fn(Count<8>{}, c);
    c += 8;
  }
  for (; c < width; ++c) fn(Count<1>{}, c);
}

// Writes the mean of each column, and the sum of squared deviations.
void ColumnMoments(int64_t rows, int64_t width, const float* x, float* mean_out,
                   float* squares_out) {
  const float share = 1.0f / static_cast<float>(rows);
  ForColumnGroups(width, [&](auto group, int64_t first) {
    constexpr int64_t kCount = decltype(group)::kCount;
    float mean[kCount] = {}, squares[kCount] = {};
    for (int64_t r = 0; r < rows; ++r) {
      const float* __restrict row = x + r * width + first;
      for (int64_t c = 0; c < kCount; ++c) mean[c] += row[c];
    }
    for (int64_t c = 0; c < kCount; ++c) mean[c] *= share;
    for (int64_t r = 0; r < rows; ++r) {
      const float* __restrict row = x + r * width + first;
      for (int64_t c = 0; c < kCount; ++c) {
        const float deviation = row[c] - mean[c];
        squares[c] += deviation * deviation;
      }
    }
    for (int64_t c = 0; c < kCount; ++c) {
      mean_out[first + c] = mean[c];
      squares_out[first + c] = squares[c];
    }
  });
}

// `gates_out` may be null.
void DiceRows(int64_t rows, int64_t width, const float* x, const DiceColumns& columns,
              float* output, float* gates_out) {
  const float* __restrict alpha = columns.alpha;
  const float* __restrict mean = columns.mean;
  const float* __restrict inverse = columns.inverse;
  const auto run = [&](auto has_gates) {
    for (int64_t r = 0; r < rows; ++r) {
      const float* __restrict row = x + r * width;
      float* __restrict out = output + r * width;
      float* __restrict gates = has_gates.kCount != 0 ? gates_out + r * width : nullptr;
      for (int64_t c = 0; c < width; ++c) {
        const float p = Sigmoid((row[c] - mean[c]) * inverse[c]);
        if (has_gates.kCount != 0) gates[c] = p;
        out[c] = row[c] * (alpha[c] + p * (1.0f - alpha[c]));
      }
    }
  };
  if (gates_out != nullptr) {
    run(Count<1>{});
  } else {
    run(Count<0>{});
  }
}

// The sums of `DiceSums` for `count` columns from column `first`, in memory that nothing else uses,
// so that the compiler can compute 16 columns at once.
template <int64_t kCount, bool kHasGates>
MSREC_INLINE void DiceSumsOfColumns(int64_t rows, int64_t width, int64_t first, const float* x,
                                    const DiceColumns& columns, const float* gates,
                                    const float* of_output, const DiceSlopes& sums) {
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
    const float* __restrict gate = kHasGates ? gates + r * width + first : nullptr;
    for (int64_t c = 0; c < kCount; ++c) {
      const float normal = (row[c] - mean[c]) * inverse[c];
      const float p = kHasGates ? gate[c] : Sigmoid(normal);
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
              const float* gates, const float* of_output, const DiceSlopes& sums) {
  ForColumnGroups(width, [&](auto group, int64_t first) {
    constexpr int64_t kCount = decltype(group)::kCount;
    if (gates != nullptr) {
      DiceSumsOfColumns<kCount, true>(rows, width, first, x, columns, gates, of_output, sums);
    } else {
      DiceSumsOfColumns<kCount, false>(rows, width, first, x, columns, gates, of_output, sums);
    }
  });
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
