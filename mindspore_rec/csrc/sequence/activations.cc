// SPDX-License-Identifier: Apache-2.0
#include "sequence/activations.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "sequence/sequence_kernels.h"

namespace msrec {
namespace {

constexpr int64_t kActivationRows = 256;

int64_t ActivationBlocks(int64_t rows) { return (rows + kActivationRows - 1) / kActivationRows; }

// Calls fn(block, first row, number of rows) for the blocks in parallel.
template <typename Fn>
void ForActivationBlocks(int64_t rows, ThreadPool* pool, const Fn& fn) {
  pool->ParallelFor(ActivationBlocks(rows), [&](int64_t block) {
    const int64_t first = block * kActivationRows;
    fn(block, first, std::min(kActivationRows, rows - first));
  });
}

// Adds up the partial sums [blocks, width] of all blocks, in the order of the blocks.
std::vector<double> SumOfBlocks(const std::vector<float>& partial, int64_t width) {
  std::vector<double> sums(static_cast<size_t>(width));
  for (size_t k = 0; k < partial.size(); ++k) {
    sums[k % static_cast<size_t>(width)] += static_cast<double>(partial[k]);
  }
  return sums;
}

std::vector<float> InverseOf(const DiceForm& form) {
  std::vector<float> inverse(static_cast<size_t>(form.width));
  for (int64_t c = 0; c < form.width; ++c) {
    inverse[static_cast<size_t>(c)] = 1.0f / std::sqrt(form.variance[c] + form.epsilon);
  }
  return inverse;
}

}  // namespace

void Moments(int64_t rows, int64_t width, const float* x, float* mean, float* variance,
             ThreadPool* pool) {
  std::vector<float> partial(static_cast<size_t>(ActivationBlocks(rows) * 2 * width));
  ForActivationBlocks(rows, pool, [&](int64_t block, int64_t first, int64_t count) {
    float* moments = partial.data() + block * 2 * width;
    ActiveSequenceKernels().column_moments(count, width, x + first * width, moments,
                                           moments + width);
  });
  // Joins the moments of the blocks (Chan, Golub & LeVeque).
  for (int64_t c = 0; c < width; ++c) {
    double joined = 0.0, squares = 0.0, seen = 0.0;
    for (int64_t block = 0; block < ActivationBlocks(rows); ++block) {
      const double count =
          static_cast<double>(std::min(kActivationRows, rows - block * kActivationRows));
      const float* moments = partial.data() + block * 2 * width;
      const double apart = static_cast<double>(moments[c]) - joined;
      joined += apart * count / (seen + count);
      squares +=
          static_cast<double>(moments[width + c]) + apart * apart * seen * count / (seen + count);
      seen += count;
    }
    mean[c] = static_cast<float>(joined);
    variance[c] = static_cast<float>(squares / static_cast<double>(rows));
  }
}

void Dice(const DiceForm& form, const float* x, float* output, ThreadPool* pool) {
  const std::vector<float> inverse = InverseOf(form);
  const DiceColumns columns = {form.alpha, form.mean, inverse.data()};
  ForActivationBlocks(form.rows, pool, [&](int64_t, int64_t first, int64_t count) {
    ActiveSequenceKernels().dice_rows(count, form.width, x + first * form.width, columns,
                                      output + first * form.width, nullptr);
  });
}

void DiceGradientOf(const DiceForm& form, const float* x, const float* of_output, float* of_x,
                    float* of_alpha, ThreadPool* pool) {
  const std::vector<float> inverse = InverseOf(form);
  const DiceColumns columns = {form.alpha, form.mean, inverse.data()};
  const int64_t width = form.width;
  std::vector<float> partial(static_cast<size_t>(ActivationBlocks(form.rows) * 3 * width));
  ForActivationBlocks(form.rows, pool, [&](int64_t block, int64_t first, int64_t count) {
    float* sums = partial.data() + block * 3 * width;
    ActiveSequenceKernels().dice_sums(count, width, x + first * width, columns, nullptr,
                                      of_output + first * width,
                                      {sums, sums + width, sums + 2 * width});
  });
  const std::vector<double> sums = SumOfBlocks(partial, 3 * width);
  std::vector<float> means(static_cast<size_t>(2 * width));
  for (size_t k = 0; k < means.size(); ++k) {
    means[k] = form.of_batch && form.rows > 0
                   ? static_cast<float>(sums[k] / static_cast<double>(form.rows))
                   : 0.0f;
  }
  for (int64_t c = 0; c < width; ++c) {
    of_alpha[c] = static_cast<float>(sums[static_cast<size_t>(2 * width + c)]);
  }
  ForActivationBlocks(form.rows, pool, [&](int64_t, int64_t first, int64_t count) {
    ActiveSequenceKernels().dice_gradient(
        count, width, x + first * width, columns, of_output + first * width,
        {means.data(), means.data() + width, nullptr}, of_x + first * width);
  });
}

void PRelu(const PReluForm& form, const float* x, float* output, ThreadPool* pool) {
  ForActivationBlocks(form.rows, pool, [&](int64_t, int64_t first, int64_t count) {
    ActiveSequenceKernels().prelu_rows(count, form.width, x + first * form.width, form.alpha,
                                       output + first * form.width);
  });
}

void PReluGradientOf(const PReluForm& form, const float* x, const float* of_output, float* of_x,
                     float* of_alpha, ThreadPool* pool) {
  const int64_t width = form.width;
  std::vector<float> partial(static_cast<size_t>(ActivationBlocks(form.rows) * width));
  ForActivationBlocks(form.rows, pool, [&](int64_t block, int64_t first, int64_t count) {
    ActiveSequenceKernels().prelu_gradient(count, width, x + first * width, form.alpha,
                                           of_output + first * width, of_x + first * width,
                                           partial.data() + block * width);
  });
  const std::vector<double> sums = SumOfBlocks(partial, width);
  for (int64_t c = 0; c < width; ++c) {
    of_alpha[c] = static_cast<float>(sums[static_cast<size_t>(c)]);
  }
}

}  // namespace msrec
