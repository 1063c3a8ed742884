// SPDX-License-Identifier: Apache-2.0
//
// Kernels of vectors of numbers: curves and waves.
#pragma once

#include "cuda/kernel_places.inl"

namespace msrec {
namespace kernels {

// ---------------------------------------------------------------- curves

MSREC_KERNEL(Curves, CurvesArguments) {
  const Place at = PlaceOf(i, a.numbers * a.dim);
  const Place unit = PlaceOf(at.column, a.dim);  // the number, and the float of its vector
  const CurvePlace on = PlaceOnCurve(RowAt(a.x, at.row)[unit.row], a.bins);
  const float* below = a.knots + (unit.row * (a.bins + 1) + on.knot) * a.dim + unit.column;
  *At(a.output, at) = below[0] + on.share * (below[a.dim] - below[0]);
}

MSREC_KERNEL(CurvesInputGradient, CurvesArguments) {
  const Place at = PlaceOf(i, a.numbers);
  const CurvePlace on = PlaceOnCurve(*At(a.x, at), a.bins);
  const float* below = a.knots + (at.column * (a.bins + 1) + on.knot) * a.dim;
  const float* g = RowAt(a.output, at.row) + at.column * a.dim;
  float dot = 0.0f;
  for (int64_t d = 0; d < a.dim; ++d) dot += g[d] * (below[a.dim + d] - below[d]);
  Put(0.5f * static_cast<float>(a.bins) * dot, a.adds, At(a.of_x, at));
}

MSREC_KERNEL(KnotSums, CurvesArguments) {
  const Place at = PlaceOf(i, a.chunks.width);
  const Place knot = PlaceOf(at.column, a.dim);
  const Place of_number = PlaceOf(knot.row, a.bins + 1);
  float sum = 0.0f;
  ForRows(
      a.chunks, at.row,
      [&](int64_t r) { return PlaceOnCurve(RowAt(a.x, r)[of_number.row], a.bins); },
      [&](int64_t r, const CurvePlace& on) {
        const int64_t above = of_number.column - on.knot;  // 0 or 1 if the row reads the knot
        if (above != 0 && above != 1) return;
        const float g = RowAt(a.output, r)[of_number.row * a.dim + knot.column];
        sum += (above == 1 ? on.share : 1.0f - on.share) * g;
      });
  a.partial[i] = sum;
}

// ---------------------------------------------------------------- waves

// Gradient of float d of a number's vector before the ReLU.
MSREC_INLINE float BelowRelu(const WavesArguments& a, int64_t row, int64_t number, int64_t d) {
  const int64_t at = number * a.dim + d;
  return Relu::Gradient(RowAt(a.output, row)[at], RowAt(a.gradient, row)[at]);
}

// Gradient of frequency k times number, in turns.
MSREC_INLINE float OfTurns(const WavesArguments& a, int64_t row, int64_t number, int64_t k) {
  float of_sine = 0.0f;
  float of_cosine = 0.0f;
  for (int64_t d = 0; d < a.dim; ++d) {
    const float below = BelowRelu(a, row, number, d);
    of_sine += below * a.weight[d * 2 * a.count + k];
    of_cosine += below * a.weight[d * 2 * a.count + a.count + k];
  }
  const SineAndCosine wave = WaveOf(a.frequencies[number * a.count + k] * RowAt(a.x, row)[number]);
  return 6.283185307f * (of_sine * wave.cosine - of_cosine * wave.sine);
}

MSREC_KERNEL(Waves, WavesArguments) {
  const Place at = PlaceOf(i, a.numbers * a.dim);
  const Place unit = PlaceOf(at.column, a.dim);
  const float x = RowAt(a.x, at.row)[unit.row];
  const float* frequencies = a.frequencies + unit.row * a.count;
  const float* weight = a.weight + unit.column * 2 * a.count;
  float sum = a.bias[unit.column];
  for (int64_t k = 0; k < a.count; ++k) {
    const SineAndCosine wave = WaveOf(frequencies[k] * x);
    sum += weight[k] * wave.sine + weight[a.count + k] * wave.cosine;
  }
  *At(a.output, at) = Relu::Value(sum);
}

MSREC_KERNEL(WavesInputGradient, WavesArguments) {
  const Place at = PlaceOf(i, a.numbers);
  const float* frequencies = a.frequencies + at.column * a.count;
  float slope = 0.0f;
  for (int64_t k = 0; k < a.count; ++k) slope += OfTurns(a, at.row, at.column, k) * frequencies[k];
  Put(slope, a.adds, At(a.of_x, at));
}

MSREC_KERNEL(FrequencySums, WavesArguments) {
  const Place at = PlaceOf(i, a.chunks.width);
  const Place unit = PlaceOf(at.column, a.count);  // the number, and its frequency
  float sum = 0.0f;
  ForRows(
      a.chunks, at.row, [&](int64_t r) { return RowAt(a.x, r)[unit.row]; },
      [&](int64_t r, float x) { sum += OfTurns(a, r, unit.row, unit.column) * x; });
  a.partial[i] = sum;
}

MSREC_KERNEL(WaveWeightSums, WavesArguments) {
  const Place at = PlaceOf(i, a.chunks.width);
  const Place unit = PlaceOf(at.column, 2 * a.count);  // the float of a vector, and the wave
  const bool is_sine = unit.column < a.count;
  const int64_t k = is_sine ? unit.column : unit.column - a.count;
  float sum = 0.0f;
  ForRows(
      a.chunks, at.row, [&](int64_t r) { return r; },
      [&](int64_t r, int64_t) {
        for (int64_t n = 0; n < a.numbers; ++n) {
          const SineAndCosine wave = WaveOf(a.frequencies[n * a.count + k] * RowAt(a.x, r)[n]);
          sum += BelowRelu(a, r, n, unit.row) * (is_sine ? wave.sine : wave.cosine);
        }
      });
  a.partial[i] = sum;
}

MSREC_KERNEL(WaveBiasSums, WavesArguments) {
  const Place at = PlaceOf(i, a.chunks.width);
  float sum = 0.0f;
  ForRows(
      a.chunks, at.row, [&](int64_t r) { return r; },
      [&](int64_t r, int64_t) {
        for (int64_t n = 0; n < a.numbers; ++n) sum += BelowRelu(a, r, n, at.column);
      });
  a.partial[i] = sum;
}

}  // namespace kernels
}  // namespace msrec
