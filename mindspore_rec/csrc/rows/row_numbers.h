// SPDX-License-Identifier: Apache-2.0
//
// RowsOut, Gradient: rows outside a table, [n, dim]: the output of a lookup, and its gradient. The
// numbers are float32, or bfloat16 as bits (util/bfloat16.h) in half as many bytes. RowsOut and
// Gradient do not own the memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rows/kernels.h"

namespace msrec {

// One of the two pointers is null. Both pointers are null if nothing is to be written.
struct RowsOut {
  float* floats = nullptr;
  uint16_t* halves = nullptr;

  RowsOut(float* data) : floats(data) {}  // NOLINT: most callers have floats
  static RowsOut Bfloat16(uint16_t* data) {
    RowsOut out(nullptr);
    out.halves = data;
    return out;
  }
  explicit operator bool() const { return floats != nullptr || halves != nullptr; }
};

struct Gradient {
  const float* floats = nullptr;
  const uint16_t* halves = nullptr;

  Gradient(const float* data) : floats(data) {}  // NOLINT: as above
  // The gradient in an operator's argument.
  explicit Gradient(const RowsOut& rows) : floats(rows.floats), halves(rows.halves) {}
  static Gradient Bfloat16(const uint16_t* data) {
    Gradient gradient(nullptr);
    gradient.halves = data;
    return gradient;
  }
};

// Call the gather kernel for the type of the output (RowKernels).
inline void GatherRows(const RowKernels& kernels, char* const* rows, const uint32_t* inverse,
                       const uint32_t* pos, size_t n, const float* default_row, int dim,
                       const RowsOut& out) {
  if (out.halves != nullptr) {
    kernels.gather_bfloat16(rows, inverse, pos, n, default_row, dim, out.halves);
  } else {
    kernels.gather(rows, inverse, pos, n, default_row, dim, out.floats);
  }
}

// Call the accumulate kernel for the type of the gradient (Kernels).
inline void AddGradient(const Kernels& kernels, const uint32_t* slot, const uint32_t* pos, size_t n,
                        const Gradient& gradient, const uint32_t* source, const float* scale,
                        int dim, float* sums) {
  if (gradient.halves != nullptr) {
    kernels.accumulate_bfloat16(slot, pos, n, gradient.halves, source, scale, dim, sums);
  } else {
    kernels.accumulate(slot, pos, n, gradient.floats, source, scale, dim, sums);
  }
}

}  // namespace msrec
