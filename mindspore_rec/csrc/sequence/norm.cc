// SPDX-License-Identifier: Apache-2.0
#include "sequence/norm.h"

#include <algorithm>
#include <vector>

#include "sequence/sequence_kernels.h"

namespace msrec {
namespace {

constexpr int64_t kNormRows = 1024;

}  // namespace

void Normalize(const NormForm& form, const float* x, float* output, ThreadPool* pool) {
  pool->ParallelFor((form.rows + kNormRows - 1) / kNormRows, [&](int64_t block) {
    const int64_t first = block * kNormRows;
    ActiveSequenceKernels().norm_rows(std::min(kNormRows, form.rows - first), form.width,
                                      x + first * form.width, form.scale, form.shift, form.epsilon,
                                      output + first * form.width);
  });
}

void NormalizeGradient(const NormForm& form, const float* x, const float* of_output,
                       const NormGradient& gradient, ThreadPool* pool) {
  const int64_t width = form.width;
  const int64_t blocks = (form.rows + kNormRows - 1) / kNormRows;
  std::vector<float> partial(static_cast<size_t>(blocks * 2 * width));
  pool->ParallelFor(blocks, [&](int64_t block) {
    const int64_t first = block * kNormRows;
    float* sums = partial.data() + block * 2 * width;
    ActiveSequenceKernels().norm_rows_gradient(
        std::min(kNormRows, form.rows - first), width, x + first * width, form.scale, form.epsilon,
        of_output + first * width, gradient.x + first * width, sums, sums + width);
  });
  std::fill_n(gradient.scale, width, 0.0f);
  std::fill_n(gradient.shift, width, 0.0f);
  for (int64_t block = 0; block < blocks; ++block) {
    const float* sums = partial.data() + block * 2 * width;
    for (int64_t c = 0; c < width; ++c) {
      gradient.scale[c] += sums[c];
      gradient.shift[c] += sums[width + c];
    }
  }
}

}  // namespace msrec
