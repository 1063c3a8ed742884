// SPDX-License-Identifier: Apache-2.0
#include "tier/checked_rows.h"

#include <cstring>

#include "util/crc32c.h"

namespace msrec {
namespace {

uint32_t CheckOf(int64_t key, const char* row, size_t row_bytes) {
  return Crc32c(Crc32c(0, &key, sizeof key), row, row_bytes);
}

}  // namespace

void PutCheckedRows(const int64_t* keys, const char* rows, size_t row_bytes, const int64_t* order,
                    size_t n, size_t stride, char* to) {
  for (size_t i = 0; i < n; ++i, to += stride) {
    const char* row = rows + static_cast<size_t>(order[i]) * row_bytes;
    const uint32_t check = CheckOf(keys[order[i]], row, row_bytes);
    std::memcpy(to, row, row_bytes);
    std::memcpy(to + row_bytes, &check, kCheckBytes);
  }
}

std::vector<int64_t> TakeCheckedRows(const int64_t* keys, const char* from, size_t row_bytes,
                                     const int64_t* order, size_t n, char* rows) {
  std::vector<int64_t> damaged;
  for (size_t i = 0; i < n; ++i, from += row_bytes + kCheckBytes) {
    uint32_t check;
    std::memcpy(&check, from + row_bytes, kCheckBytes);
    if (check != CheckOf(keys[order[i]], from, row_bytes)) {
      damaged.push_back(static_cast<int64_t>(i));
      continue;
    }
    std::memcpy(rows + static_cast<size_t>(order[i]) * row_bytes, from, row_bytes);
  }
  return damaged;
}

}  // namespace msrec
