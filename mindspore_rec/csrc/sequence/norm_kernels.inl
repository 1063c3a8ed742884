// SPDX-License-Identifier: Apache-2.0
//
// Normalization of rows. Part of sequence_loops.inl, whose rules hold here, too.
#pragma once

#include "sequence/attention_kernels.inl"

namespace msrec {
namespace {

struct RowMoments {
  float mean, inverse;  // 1 / sqrt(variance + epsilon)
};

// Sum of n floats, by 16 partial sums.
MSREC_INLINE float SumOf(int64_t n, const float* x) {
  const int64_t whole = n / kSums * kSums;
  float partial[kSums];
  PartialSums(x, whole, partial);
  for (int64_t l = 0; whole + l < n; ++l) partial[l] += x[whole + l];
  return SumOf16(partial);
}

// Returns the moments of a row, and writes its deviations from the mean.
MSREC_INLINE RowMoments MomentsOf(int64_t width, const float* x, float epsilon, float* deviations) {
  const float mean = SumOf(width, x) / static_cast<float>(width);
  float* __restrict d = deviations;
  for (int64_t c = 0; c < width; ++c) d[c] = x[c] - mean;
  const float variance = Dot(width, d, d) / static_cast<float>(width);
  return {mean, 1.0f / SquareRoot(variance + epsilon)};
}

void NormRows(int64_t rows, int64_t width, const float* x, const float* scale_in,
              const float* shift_in, float epsilon, float* output) {
  const float* __restrict scale = scale_in;
  const float* __restrict shift = shift_in;
  for (int64_t r = 0; r < rows; ++r) {
    float* __restrict out = output + r * width;
    const RowMoments moments = MomentsOf(width, x + r * width, epsilon, out);
    for (int64_t c = 0; c < width; ++c) {
      out[c] = out[c] * moments.inverse * scale[c] + shift[c];
    }
  }
}

void NormRowsGradient(int64_t rows, int64_t width, const float* x, const float* scale_in,
                      float epsilon, const float* of_output, float* of_x, float* of_scale_out,
                      float* of_shift_out) {
  using V = typename Lanes<kLanes>::Type;
  constexpr int kVectors = static_cast<int>(kSums) / kLanes;
  const float share = 1.0f / static_cast<float>(width);
  const float* __restrict scale = scale_in;
  float* __restrict of_scale = of_scale_out;
  float* __restrict of_shift = of_shift_out;
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict g = of_output + r * width;
    float* __restrict out = of_x + r * width;
    const RowMoments moments = MomentsOf(width, x + r * width, epsilon, out);
    const float inverse = moments.inverse;
    // The sums of g scale, and of g scale times the normalized values.
    V sum_lanes[kVectors] = {};
    V dot_lanes[kVectors] = {};
    const int64_t whole = width / kSums * kSums;
    for (int64_t c = 0; c < whole; c += kSums) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const int64_t at = c + v * kLanes;
        V gradient, normal, scaled, of_shift_lanes, of_scale_lanes;
        Read(g + at, &gradient);
        Read(out + at, &normal);
        Read(scale + at, &scaled);
        Read(of_shift + at, &of_shift_lanes);
        Read(of_scale + at, &of_scale_lanes);
        normal *= inverse;
        scaled *= gradient;
        Write(of_shift_lanes + gradient, of_shift + at);
        Write(of_scale_lanes + gradient * normal, of_scale + at);
        sum_lanes[v] += scaled;
        dot_lanes[v] += scaled * normal;
      }
    }
    float sums[kSums];
    float dots[kSums];
    for (int v = 0; v < kVectors; ++v) {
      Write(sum_lanes[v], sums + v * kLanes);
      Write(dot_lanes[v], dots + v * kLanes);
    }
    for (int64_t l = 0; whole + l < width; ++l) {
      const int64_t c = whole + l;
      const float normal = out[c] * inverse;
      of_shift[c] += g[c];
      of_scale[c] += g[c] * normal;
      sums[l] += g[c] * scale[c];
      dots[l] += g[c] * scale[c] * normal;
    }
    const float mean = SumOf16(sums) * share;
    const float slope = SumOf16(dots) * share;
    for (int64_t c = 0; c < width; ++c) {
      out[c] = inverse * (g[c] * scale[c] - mean - out[c] * inverse * slope);
    }
  }
}

}  // namespace
}  // namespace msrec
