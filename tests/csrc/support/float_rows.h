// SPDX-License-Identifier: Apache-2.0
//
// The numbers of a row whose layout is all float32.
#pragma once

#include "rows/row_layout.h"

namespace msrec {

inline float* Value(char* row) { return reinterpret_cast<float*>(row + sizeof(RowMeta)); }
inline const float* Value(const char* row) {
  return reinterpret_cast<const float*>(row + sizeof(RowMeta));
}

}  // namespace msrec
