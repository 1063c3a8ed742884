// SPDX-License-Identifier: Apache-2.0
//
// Loops of batch normalization; part of elementwise.inl.

namespace msrec {
namespace {

void SquaredDeviations(int64_t rows, int64_t width, Block x, const float* mean, float* sums_out) {
  float* __restrict sums = sums_out;
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict row = RowOf(x, r);
    for (int64_t j = 0; j < width; ++j) {
      const float deviation = row[j] - mean[j];
      sums[j] += deviation * deviation;
    }
  }
}

void Normalize(int64_t rows, int64_t width, Block x, const float* mean, const float* scale,
               Block output) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict in = RowOf(x, r);
    float* __restrict out = RowOf(output, r);
    for (int64_t j = 0; j < width; ++j) out[j] = (in[j] - mean[j]) * scale[j];
  }
}

void DeviationProducts(int64_t rows, int64_t width, Block x, const float* mean, Block gradient,
                       float* sums_out) {
  float* __restrict sums = sums_out;
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict in = RowOf(x, r);
    const float* __restrict g = RowOf(gradient, r);
    for (int64_t j = 0; j < width; ++j) sums[j] += g[j] * (in[j] - mean[j]);
  }
}

void NormalizeGradient(int64_t rows, int64_t width, Block x, const float* mean, const float* scale,
                       const float* shift, const float* slope, Block gradient) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict in = RowOf(x, r);
    float* __restrict g = RowOf(gradient, r);
    for (int64_t j = 0; j < width; ++j) {
      g[j] = scale[j] * (g[j] - shift[j] - (in[j] - mean[j]) * slope[j]);
    }
  }
}

}  // namespace
}  // namespace msrec
