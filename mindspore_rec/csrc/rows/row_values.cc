// SPDX-License-Identifier: Apache-2.0
#include "rows/row_values.h"

#include <algorithm>
#include <cstring>

namespace msrec {
namespace {

const char* ValueOf(const char* row) { return row + sizeof(RowMeta); }
char* ValueOf(char* row) { return row + sizeof(RowMeta); }
const char* StateOf(const RowLayout& layout, const char* row) {
  return ValueOf(row) + layout.value_bytes();
}
char* StateOf(const RowLayout& layout, char* row) { return ValueOf(row) + layout.value_bytes(); }

}  // namespace

void ReadValue(const RowLayout& layout, const char* row, float* to) {
  Widen(layout.value_type, ValueOf(row), layout.dim, to);
}

void WriteValue(const RowLayout& layout, const float* from, char* row) {
  Narrow(layout.value_type, from, layout.dim, ValueOf(row));
}

void ReadOptimizerState(const RowLayout& layout, const char* row, float* to) {
  Widen(layout.state_type, StateOf(layout, row), layout.optimizer_width(), to);
}

void WriteOptimizerState(const RowLayout& layout, const float* from, char* row) {
  Narrow(layout.state_type, from, layout.optimizer_width(), StateOf(layout, row));
}

void ReadState(const RowLayout& layout, const char* row, float* to) {
  ReadOptimizerState(layout, row, to);
  if (layout.scored) to[layout.state_width - 1] = Score(layout, row);
}

void WriteState(const RowLayout& layout, const float* from, char* row) {
  WriteOptimizerState(layout, from, row);
  if (layout.scored) Score(layout, row) = from[layout.state_width - 1];
}

void FillOptimizerState(const RowLayout& layout, int32_t first, float accumulator, char* row) {
  char* state = StateOf(layout, row);
  if (layout.state_type == NumberType::kFloat32) {
    auto* numbers = reinterpret_cast<float*>(state);
    std::fill(numbers, numbers + first, accumulator);
    std::fill(numbers + first, numbers + layout.optimizer_width(), 0.0f);
    return;
  }
  uint16_t narrow = 0;
  Narrow(layout.state_type, &accumulator, 1, &narrow);
  auto* numbers = reinterpret_cast<uint16_t*>(state);
  std::fill(numbers, numbers + first, narrow);
  std::fill(numbers + first, numbers + layout.optimizer_width(), uint16_t{0});
}

double SquaredNormOfValue(const RowLayout& layout, const char* row) {
  constexpr int32_t kPart = 256;
  float part[kPart];
  double squares = 0.0;
  for (int32_t first = 0; first < layout.dim; first += kPart) {
    const int32_t n = std::min(kPart, layout.dim - first);
    Widen(layout.value_type, ValueOf(row) + first * BytesOf(layout.value_type), n, part);
    for (int32_t j = 0; j < n; ++j) {
      const double x = part[j];
      squares += x * x;
    }
  }
  return squares;
}

}  // namespace msrec
