// SPDX-License-Identifier: Apache-2.0
//
// The kernel of the logistic loss.
#pragma once

#include "cuda/kernel.h"
#include "dense/functions.inl"

namespace msrec {
namespace kernels {

MSREC_KERNEL(LogisticLoss, LogisticArguments) {
  double sum = 0.0;
  for (int64_t k = i; k < a.n; k += a.threads) {
    const float x = a.logits[k];
    const float y = a.labels[k];
    const float e = Exp(-Magnitude(x));
    sum += static_cast<double>(LogisticLossOf(x, y, e));
    a.gradient[k] = (ProbabilityOf(x, e) - y) * a.scale;
  }
  a.sums[i] = sum;
}

}  // namespace kernels
}  // namespace msrec
