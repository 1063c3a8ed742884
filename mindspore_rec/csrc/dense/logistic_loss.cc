// SPDX-License-Identifier: Apache-2.0
#include "dense/logistic_loss.h"

#include <algorithm>
#include <vector>

#include "dense/elementwise.h"

namespace msrec {
namespace {

constexpr int64_t kBlock = 4096;

int64_t Blocks(int64_t n) { return (n + kBlock - 1) / kBlock; }

// Elements of a block from its first on.
int64_t BlockSize(int64_t n, int64_t first) { return std::min(kBlock, n - first); }

}  // namespace

double LogisticLossSum(const LogisticBatch& batch, float scale, float* gradient, ThreadPool* pool) {
  std::vector<double> sums(static_cast<size_t>(Blocks(batch.n)));
  pool->ParallelFor(Blocks(batch.n), [&](int64_t block) {
    const int64_t first = block * kBlock;
    sums[static_cast<size_t>(block)] =
        ActiveElementwise().logistic_loss(BlockSize(batch.n, first), batch.logits + first,
                                          batch.labels + first, scale, gradient + first);
  });
  double total = 0.0;
  for (const double sum : sums) total += sum;
  return total;
}

void LogisticLossGradients(const LogisticBatch& batch, float scale, const float* gradient,
                           float given, float* of_logits, float* of_labels, ThreadPool* pool) {
  const float slope = -given * scale;
  pool->ParallelFor(Blocks(batch.n), [&](int64_t block) {
    const int64_t first = block * kBlock;
    const int64_t end = first + BlockSize(batch.n, first);
    for (int64_t i = first; i < end; ++i) {
      of_logits[i] = given * gradient[i];
      of_labels[i] = slope * batch.logits[i];
    }
  });
}

}  // namespace msrec
