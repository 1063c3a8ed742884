// SPDX-License-Identifier: Apache-2.0
//
// ExportedRows: rows exported from a table, as arrays. Values and states are always float32, even
// if the table uses other types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "rows/row_layout.h"

namespace msrec {

// Keys, and a pointer to each key's row; the pointer is null if the key has no row.
using KeyedRows = std::vector<std::pair<int64_t, const char*>>;

// Arrays of exported rows. state_width is 0 if rows were exported without state.
struct ExportedRows {
  size_t n = 0;
  int32_t dim = 0;
  int32_t state_width = 0;
  std::unique_ptr<int64_t[]> keys;
  std::unique_ptr<float[]> values;
  std::unique_ptr<float[]> states;
  std::unique_ptr<uint32_t[]> counts;
  std::unique_ptr<uint32_t[]> last_steps;
  std::unique_ptr<uint32_t[]> last_times;
  std::unique_ptr<bool[]> present;  // false: the key is deleted and its other entries are zero
};

// Call fn(array, width) for each array, where `width` is the array's number of entries per row.
template <typename Rows, typename Fn>
void ForEachArray(Rows& rows, const Fn& fn) {
  fn(rows.keys, size_t{1});
  fn(rows.values, static_cast<size_t>(rows.dim));
  fn(rows.states, static_cast<size_t>(rows.state_width));
  fn(rows.counts, size_t{1});
  fn(rows.last_steps, size_t{1});
  fn(rows.last_times, size_t{1});
  fn(rows.present, size_t{1});
}

// Return arrays for n rows. Throws std::bad_alloc.
ExportedRows NewRows(size_t n, int32_t dim, int32_t state_width);
ExportedRows NewExport(const RowLayout& layout, size_t n, bool with_state);

// Copy a row to place i of the arrays. For a key without a row, `row` is null.
void PackRow(const RowLayout& layout, int64_t key, const char* row, size_t i, ExportedRows* out);
// Copy rows to the arrays until the arrays are full; the first row becomes element `from` of the
// arrays.
void Pack(const RowLayout& layout, const KeyedRows& rows, size_t from, ExportedRows* out);

}  // namespace msrec
