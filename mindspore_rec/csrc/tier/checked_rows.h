// SPDX-License-Identifier: Apache-2.0
//
// Rows followed by a checksum, for tiers whose store keeps no checksums. The row's bytes are
// followed by 4 little-endian bytes of CRC32C over the key (8 little-endian bytes) and the row. The
// checksum detects a changed bit in the row or in the checksum, and a row that was stored under
// another key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace msrec {

constexpr size_t kCheckBytes = 4;

// For i in [0, n), write row order[i] of `rows`, whose key is keys[order[i]], and the row's
// checksum to `to` + i * stride. Requires: each order[i] is below the number of keys and rows, and
// stride is at least row_bytes + kCheckBytes.
void PutCheckedRows(const int64_t* keys, const char* rows, size_t row_bytes, const int64_t* order,
                    size_t n, size_t stride, char* to);

// Copy n consecutive checked rows from `from`: row i is copied to row order[i] of `rows`, and the
// key of row i is keys[order[i]]. Do not copy a row that does not match its checksum. Return the
// index i of each row that was not copied.
std::vector<int64_t> TakeCheckedRows(const int64_t* keys, const char* from, size_t row_bytes,
                                     const int64_t* order, size_t n, char* rows);

}  // namespace msrec
