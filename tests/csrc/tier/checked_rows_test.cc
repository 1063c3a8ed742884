// SPDX-License-Identifier: Apache-2.0
#include "tier/checked_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "testing.h"

namespace msrec {
namespace {

// Rows by key, packed in some order with other bytes around them, and taken out again.
TEST(CheckedRows, EachBitThatChangesIsFound) {
  Rng rng(3);
  for (const size_t row_bytes : {1, 7, 52, 212}) {
    const size_t n = 9;
    std::vector<int64_t> keys, order;
    std::string rows(n * row_bytes, '\0');
    for (char& c : rows) c = static_cast<char>(rng.Bits());
    for (size_t i = 0; i < n; ++i) {
      keys.push_back(static_cast<int64_t>(rng.Bits()));
      order.push_back(static_cast<int64_t>(n - 1 - i));
    }
    const size_t checked = row_bytes + kCheckBytes;
    std::string lines(n * (checked + 3), 'x');
    PutCheckedRows(keys.data(), rows.data(), row_bytes, order.data(), n, checked + 3, &lines[0]);
    std::string packed;
    for (size_t i = 0; i < n; ++i) {
      packed += lines.substr(i * (checked + 3), checked);
      ASSERT_EQ(lines.substr(i * (checked + 3) + checked, 3), "xxx");
    }
    std::string out(rows.size(), '\0');
    ASSERT_TRUE(
        TakeCheckedRows(keys.data(), packed.data(), row_bytes, order.data(), n, &out[0]).empty());
    ASSERT_EQ(out, rows);
    for (size_t bit = 0; bit < checked * 8; ++bit) {
      const size_t of = rng.Below(n);
      packed[of * checked + bit / 8] ^= static_cast<char>(1 << bit % 8);
      std::fill(out.begin(), out.end(), '\0');
      ASSERT_EQ(TakeCheckedRows(keys.data(), packed.data(), row_bytes, order.data(), n, &out[0]),
                std::vector<int64_t>{static_cast<int64_t>(of)});
      packed[of * checked + bit / 8] ^= static_cast<char>(1 << bit % 8);
      const auto place = static_cast<size_t>(order[of]) * row_bytes;
      ASSERT_EQ(out.substr(place, row_bytes), std::string(row_bytes, '\0'));  // it is not copied
    }
    ++keys[4];  // and a row of another key
    ASSERT_EQ(TakeCheckedRows(keys.data(), packed.data(), row_bytes, order.data(), n, &out[0]),
              std::vector<int64_t>{static_cast<int64_t>(n - 1 - 4)});
  }
}

}  // namespace
}  // namespace msrec
