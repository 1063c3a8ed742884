// SPDX-License-Identifier: Apache-2.0
//
// Functions that copy or clear the rows of a block.
#pragma once

#include <cstdint>
#include <cstring>

#include "dense/elementwise.h"

namespace msrec {

inline void CopyRows(const Block& from, int64_t rows, int64_t width, const Block& to) {
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(to.row(r), from.row(r), sizeof(float) * static_cast<size_t>(width));
  }
}

// Clears the rows [begin, end).
inline void ZeroRows(const Block& block, int64_t begin, int64_t end, int64_t width) {
  for (int64_t r = begin; r < end; ++r) {
    std::memset(block.row(r), 0, sizeof(float) * static_cast<size_t>(width));
  }
}

}  // namespace msrec
