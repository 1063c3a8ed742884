// SPDX-License-Identifier: Apache-2.0
#include "rows/exported_rows.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "rows/row_values.h"
#include "util/for_blocks.h"

namespace msrec {

ExportedRows NewRows(size_t n, int32_t dim, int32_t state_width) {
  ExportedRows out;
  out.n = n;
  out.dim = dim;
  out.state_width = state_width;
  ForEachArray(out, [n](auto& array, size_t width) {
    using T = std::remove_reference_t<decltype(array[0])>;
    array.reset(new T[n * width]);
  });
  return out;
}

ExportedRows NewExport(const RowLayout& layout, size_t n, bool with_state) {
  return NewRows(n, layout.dim, with_state ? layout.state_width : 0);
}

void PackRow(const RowLayout& layout, int64_t key, const char* row, size_t i, ExportedRows* out) {
  const size_t dim = out->dim;
  const size_t width = out->state_width;
  out->keys[i] = key;
  out->present[i] = row != nullptr;
  out->counts[i] = row != nullptr ? Meta(row)->count : 0;
  out->last_steps[i] = row != nullptr ? Meta(row)->last_step : 0;
  out->last_times[i] = row != nullptr ? Meta(row)->last_time : 0;
  float* value = out->values.get() + i * dim;
  float* state = out->states.get() + i * width;
  if (row == nullptr) {
    std::memset(value, 0, dim * sizeof(float));
    std::memset(state, 0, width * sizeof(float));
  } else {
    ReadValue(layout, row, value);
    if (width > 0) ReadState(layout, row, state);
  }
}

void Pack(const RowLayout& layout, const KeyedRows& rows, size_t from, ExportedRows* to) {
  const size_t n = std::min(rows.size(), to->n - std::min(from, to->n));
  ForBlocks(n, 4096, [&](size_t begin, size_t end) {
    for (size_t j = begin; j < end; ++j) {
      PackRow(layout, rows[j].first, rows[j].second, from + j, to);
    }
  });
}

}  // namespace msrec
