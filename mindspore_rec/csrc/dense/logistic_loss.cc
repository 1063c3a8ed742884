// SPDX-License-Identifier: Apache-2.0
#include "dense/logistic_loss.h"

#include <algorithm>
#include <vector>

#include "dense/elementwise.h"

namespace msrec {
namespace {

constexpr int64_t kLossBlock = 4096;

int64_t LossBlocks(int64_t n) { return (n + kLossBlock - 1) / kLossBlock; }

// Number of elements in the block that begins at `first`.
int64_t LossBlockSize(int64_t n, int64_t first) { return std::min(kLossBlock, n - first); }

}  // namespace

double LogisticLossSum(const LogisticBatch& batch, float scale, float* gradient, ThreadPool* pool) {
  std::vector<double> sums(static_cast<size_t>(LossBlocks(batch.n)));
  pool->ParallelFor(LossBlocks(batch.n), [&](int64_t block) {
    const int64_t first = block * kLossBlock;
    sums[static_cast<size_t>(block)] =
        ActiveElementwise().logistic_loss(LossBlockSize(batch.n, first), batch.logits + first,
                                          batch.labels + first, scale, gradient + first);
  });
  double total = 0.0;
  for (const double sum : sums) total += sum;
  return total;
}

void LogisticLossGradients(const LogisticBatch& batch, float scale, const float* gradient,
                           float given, float* of_logits, float* of_labels, ThreadPool* pool) {
  const float slope = -given * scale;
  pool->ParallelFor(LossBlocks(batch.n), [&](int64_t block) {
    const int64_t first = block * kLossBlock;
    const int64_t end = first + LossBlockSize(batch.n, first);
    for (int64_t i = first; i < end; ++i) {
      of_logits[i] = given * gradient[i];
      of_labels[i] = slope * batch.logits[i];
    }
  });
}

}  // namespace msrec
