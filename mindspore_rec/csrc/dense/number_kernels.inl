// SPDX-License-Identifier: Apache-2.0
//
// The loops of vectors of numbers: curves and waves. Part of elementwise.inl, whose rules hold
// here, too.
namespace msrec {
namespace {

// ---------------------------------------------------------------- curves

void Curves(int64_t rows, const NumberCurves& curves, Block x, Block output) {
  const int64_t dim = curves.dim;
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = RowOf(x, r);
    const float* knots = curves.knots;
    float* __restrict out = RowOf(output, r);
    for (int64_t n = 0; n < curves.numbers; ++n) {
      const CurvePlace at = PlaceOnCurve(in[n], curves.bins);
      const float* __restrict below = knots + at.knot * dim;
      const float* __restrict above = below + dim;
      for (int64_t d = 0; d < dim; ++d) out[d] = below[d] + at.share * (above[d] - below[d]);
      knots += (curves.bins + 1) * dim;
      out += dim;
    }
  }
}

// Sum of g[j] (a[j] - b[j]), in an order that does not depend on the processor's vectors.
MSREC_INLINE float DotOfDifference(const float* g, const float* a, const float* b, int64_t width) {
  Eight sum = {};
  int64_t j = 0;
  for (; j + 8 <= width; j += 8) {
    Eight of_g, of_a, of_b;
    __builtin_memcpy(&of_g, g + j, sizeof(of_g));
    __builtin_memcpy(&of_a, a + j, sizeof(of_a));
    __builtin_memcpy(&of_b, b + j, sizeof(of_b));
    sum += of_g * (of_a - of_b);
  }
  for (int k = 0; j < width; ++j, ++k) sum[k] += g[j] * (a[j] - b[j]);
  return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

void CurvesGradient(int64_t rows, const NumberCurves& curves, Block x, Block gradient, Target of_x,
                    float* sums) {
  const int64_t dim = curves.dim;
  const float scale = 0.5f * static_cast<float>(curves.bins);
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = RowOf(x, r);
    const float* __restrict g = RowOf(gradient, r);
    float* of_in = RowOf(of_x.block, r);
    int64_t first = 0;  // of the number's knots
    for (int64_t n = 0; n < curves.numbers; ++n) {
      const CurvePlace at = PlaceOnCurve(in[n], curves.bins);
      const int64_t knot = first + at.knot * dim;
      const float* below = curves.knots + knot;
      const float slope = scale * DotOfDifference(g, below + dim, below, dim);
      of_in[n] = of_x.adds ? of_in[n] + slope : slope;
      float* __restrict of_below = sums + knot;
      float* __restrict of_above = of_below + dim;
      const float rest = 1.0f - at.share;
      for (int64_t d = 0; d < dim; ++d) of_below[d] += rest * g[d];
      for (int64_t d = 0; d < dim; ++d) of_above[d] += at.share * g[d];
      first += (curves.bins + 1) * dim;
      g += dim;
    }
  }
}

// ---------------------------------------------------------------- waves

// Writes the sines of x times each frequency, and then the cosines.
MSREC_INLINE void WavesOf(float x, const float* frequencies, int64_t count, float* waves) {
  const float* __restrict f = frequencies;
  float* __restrict sines = waves;
  float* __restrict cosines = waves + count;
  for (int64_t k = 0; k < count; ++k) {
    const SineAndCosine wave = WaveOf(f[k] * x);
    sines[k] = wave.sine;
    cosines[k] = wave.cosine;
  }
}

// sum += a b[0..8).
MSREC_INLINE void AddTimesEight(float a, const float* b, Eight* sum) {
  Eight x;
  __builtin_memcpy(&x, b, sizeof(x));
  *sum += a * x;
}

void Waves(int64_t rows, const NumberWaves& waves, Block x, float* scratch, Block output) {
  const int64_t count = waves.count;
  const int64_t inputs = waves.waves();
  const int64_t dim = waves.dim;
  const int64_t ld = (dim + 7) / 8 * 8;
  // The weight is transposed, so that eight outputs are next to each other. Further outputs are 0.
  float* transposed = scratch;
  float* bias = transposed + inputs * ld;
  float* wave = bias + ld;
  for (int64_t d = 0; d < ld; ++d) {
    for (int64_t j = 0; j < inputs; ++j) {
      transposed[j * ld + d] = d < dim ? waves.weight[d * inputs + j] : 0.0f;
    }
    bias[d] = d < dim ? waves.bias[d] : 0.0f;
  }
  for (int64_t r = 0; r < rows; ++r) {
    float* out = RowOf(output, r);
    for (int64_t n = 0; n < waves.numbers; ++n) {
      WavesOf(RowOf(x, r)[n], waves.frequencies + n * count, count, wave);
      for (int64_t d = 0; d < ld; d += 8) {
        // The sines and cosines of even and of odd frequencies have sums of their own.
        Eight s0, s1 = {}, s2 = {}, s3 = {};
        __builtin_memcpy(&s0, bias + d, sizeof(s0));
        const float* sines = transposed + d;
        const float* cosines = sines + count * ld;
        int64_t k = 0;
        for (; k + 2 <= count; k += 2) {
          AddTimesEight(wave[k], sines + k * ld, &s0);
          AddTimesEight(wave[k + 1], sines + (k + 1) * ld, &s1);
          AddTimesEight(wave[count + k], cosines + k * ld, &s2);
          AddTimesEight(wave[count + k + 1], cosines + (k + 1) * ld, &s3);
        }
        if (k < count) {
          AddTimesEight(wave[k], sines + k * ld, &s0);
          AddTimesEight(wave[count + k], cosines + k * ld, &s2);
        }
        s0 = (s0 + s2) + (s1 + s3);
        const int64_t real = dim - d < 8 ? dim - d : 8;
        for (int64_t e = 0; e < real; ++e) out[d + e] = Relu::Value(s0[e]);
      }
      out += dim;
    }
  }
}

void WavesGradient(int64_t rows, const NumberWaves& waves, Block x, Block output, Block gradient,
                   float* scratch, Target of_x, float* sums) {
  constexpr float kTurn = 6.283185307f;
  const int64_t count = waves.count;
  const int64_t inputs = waves.waves();
  const int64_t dim = waves.dim;
  float* __restrict wave = scratch;
  float* __restrict of_wave = wave + inputs;
  float* of_bias = sums + waves.numbers * count + dim * inputs;
  for (int64_t r = 0; r < rows; ++r) {
    const float* y = RowOf(output, r);
    const float* g = RowOf(gradient, r);
    for (int64_t n = 0; n < waves.numbers; ++n) {
      const float* __restrict frequencies = waves.frequencies + n * count;
      const float number = RowOf(x, r)[n];
      WavesOf(number, frequencies, count, wave);
      for (int64_t j = 0; j < inputs; ++j) of_wave[j] = 0.0f;
      for (int64_t d = 0; d < dim; ++d) {
        const float below = Relu::Gradient(y[d], g[d]);
        of_bias[d] += below;
        const float* __restrict weight = waves.weight + d * inputs;
        float* __restrict of_weight = sums + waves.numbers * count + d * inputs;
        for (int64_t j = 0; j < inputs; ++j) {
          of_wave[j] += below * weight[j];
          of_weight[j] += below * wave[j];
        }
      }
      // The gradient of each angle in turns takes the place of the gradient of its sine.
      float* __restrict of_frequencies = sums + n * count;
      for (int64_t k = 0; k < count; ++k) {
        const float of_turns =
            kTurn * (of_wave[k] * wave[count + k] - of_wave[count + k] * wave[k]);
        of_frequencies[k] += of_turns * number;
        of_wave[k] = of_turns;
      }
      float* of_number = RowOf(of_x.block, r) + n;
      const float slope = Dot(of_wave, frequencies, count);
      *of_number = of_x.adds ? *of_number + slope : slope;
      y += dim;
      g += dim;
    }
  }
}

}  // namespace
}  // namespace msrec
