// SPDX-License-Identifier: Apache-2.0
//
// Functions that read and write the numbers of one row as float32, for all number types of a
// layout. Writing a number rounds it to the nearest number of the row's type. Reading a number and
// writing it back does not change the number. To read or write many rows, use the kernels
// (rows/kernels.h).
#pragma once

#include "rows/row_layout.h"

namespace msrec {

// Copy the value of a row, `dim` floats.
void ReadValue(const RowLayout& layout, const char* row, float* to);
void WriteValue(const RowLayout& layout, const float* from, char* row);
// Copy the state of a row, `state_width` floats. If the layout has scores, the last float is the
// score.
void ReadState(const RowLayout& layout, const char* row, float* to);
void WriteState(const RowLayout& layout, const float* from, char* row);
// Copy the optimizer's part of the state, `optimizer_width()` floats.
void ReadOptimizerState(const RowLayout& layout, const char* row, float* to);
void WriteOptimizerState(const RowLayout& layout, const float* from, char* row);
// Set the numbers 0 to `first` - 1 of the optimizer state to `accumulator`, and the numbers from
// `first` on to zero.
void FillOptimizerState(const RowLayout& layout, int32_t first, float accumulator, char* row);
// Return the sum of squares of the value's numbers.
double SquaredNormOfValue(const RowLayout& layout, const char* row);

// Return the frequency or score of a row. Requires a layout with scores.
inline float& Score(const RowLayout& layout, char* row) {
  return *reinterpret_cast<float*>(row + layout.stride() - sizeof(float));
}
inline float Score(const RowLayout& layout, const char* row) {
  return *reinterpret_cast<const float*>(row + layout.stride() - sizeof(float));
}

}  // namespace msrec
