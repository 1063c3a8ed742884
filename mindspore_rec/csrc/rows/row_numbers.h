// SPDX-License-Identifier: Apache-2.0
//
// RowsOut: the output [n, dim] of a lookup. Gradient: the gradient of a lookup's output. The
// numbers are float32, or bfloat16 as uint16 bits (util/bfloat16.h). RowsOut and Gradient do not
// own the memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rows/kernels.h"

namespace msrec {

// At most one of the two pointers is set. If there is no output, `floats` and `halves` are null.
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
  // Makes a Gradient from an operator's argument.
  explicit Gradient(const RowsOut& rows) : floats(rows.floats), halves(rows.halves) {}
  static Gradient Bfloat16(const uint16_t* data) {
    Gradient gradient(nullptr);
    gradient.halves = data;
    return gradient;
  }
};

// Call the gather kernel for the type of `out`, float32 or bfloat16.
inline void GatherRows(const RowKernels& kernels, char* const* rows, const uint32_t* inverse,
                       const uint32_t* pos, size_t n, const float* default_row, int dim,
                       const RowsOut& out) {
  if (out.halves != nullptr) {
    kernels.gather_bfloat16(rows, inverse, pos, n, default_row, dim, out.halves);
  } else {
    kernels.gather(rows, inverse, pos, n, default_row, dim, out.floats);
  }
}

// Call the accumulation kernel for the type of `gradient`, float32 or bfloat16.
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
