// SPDX-License-Identifier: Apache-2.0
//
// Binary cross-entropy of logits. Value and gradient are computed in one pass, in parallel over
// blocks. Blocks have a fixed size, so results do not depend on the number of threads.
#pragma once

#include <cstdint>

#include "util/thread_pool.h"

namespace msrec {

// A batch of n logits x with labels y. The loss of one logit is (1 - y) x + max(-x, 0) + log(1 +
// exp(-|x|)).
struct LogisticBatch {
  int64_t n = 0;
  const float* logits = nullptr;
  const float* labels = nullptr;
};

// Returns the sum of the losses. Writes the gradient of the logits, multiplied by `scale`: gradient
// = scale (sigmoid(x) - y).
double LogisticLossSum(const LogisticBatch& batch, float scale, float* gradient, ThreadPool* pool);

// Writes the gradients of the logits x and of the labels: of_logits = given * gradient, and
// of_labels = -given * scale * x. The number `given` is the incoming gradient of the loss.
void LogisticLossGradients(const LogisticBatch& batch, float scale, const float* gradient,
                           float given, float* of_logits, float* of_labels, ThreadPool* pool);

}  // namespace msrec
