// SPDX-License-Identifier: Apache-2.0
//
// Rows of an ensemble: each row is repeated for each member and multiplied by the member's factors.
// The work is divided into blocks of rows. The blocks depend only on the number of rows, so results
// do not depend on the number of threads.
#pragma once

#include <cstdint>

#include "util/thread_pool.h"

namespace msrec {

struct MemberBatch {
  int64_t members = 0;
  int64_t rows = 0;
  int64_t width = 0;
  const float* x = nullptr;        // [rows, width]
  const float* factors = nullptr;  // [members, width]
};

// Writes output[m, r, j] = x[r, j] * factors[m, j], an array [members, rows, width].
void RepeatRows(const MemberBatch& batch, float* output, ThreadPool* pool);

// Writes the gradients of x and of the factors from the gradient of the output.
void RepeatedRowsGradient(const MemberBatch& batch, const float* gradient, float* of_x,
                          float* of_factors, ThreadPool* pool);

}  // namespace msrec
