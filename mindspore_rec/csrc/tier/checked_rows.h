// SPDX-License-Identifier: Apache-2.0
//
// Rows with a checksum behind them, for tiers whose store has none of its own: the row's bytes, and
// 4 little-endian bytes of CRC32C of the key (8 little-endian bytes) and the row. A bit that
// changed in row or checksum is found, and so is a row that is found under another key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace msrec {

constexpr size_t kCheckBytes = 4;

// Write row and checksum of keys[order[i]] to `to` + i * stride, for the n rows `rows`.
// Requires: order is below the number of keys and rows, stride at least row_bytes + kCheckBytes.
void PutCheckedRows(const int64_t* keys, const char* rows, size_t row_bytes, const int64_t* order,
                    size_t n, size_t stride, char* to);

// Copy n checked rows, one behind the other in `from`, to the places of `rows` that `order` gives,
// and return the i of those that do not match their checksum with keys[order[i]]; these are not
// copied.
std::vector<int64_t> TakeCheckedRows(const int64_t* keys, const char* from, size_t row_bytes,
                                     const int64_t* order, size_t n, char* rows);

}  // namespace msrec
