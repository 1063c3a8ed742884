// SPDX-License-Identifier: Apache-2.0
#include "rows/row_digests.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace msrec {
namespace {

TEST(RowDigests, EverySetGivesThoseOfOneRow) {
  std::mt19937_64 random(1);
  constexpr size_t kRows = 70;
  for (const size_t bytes : {1, 4, 7, 8, 12, 16, 31, 64, 68, 128, 300, 1024}) {
    std::vector<char> data(kRows * (bytes + 3));
    for (char& each : data) each = static_cast<char>(random());
    std::vector<int64_t> keys(kRows);
    std::vector<const char*> values(kRows);
    for (size_t i = 0; i < kRows; ++i) {
      keys[i] = static_cast<int64_t>(random());
      values[i] = data.data() + i * (bytes + 3);  // rows are aligned to nothing
    }
    for (const char* name : {"base", "avx2", "avx512"}) {
      const RowDigestsLoop loop = FindRowDigests(name);
      if (loop == nullptr) continue;
      std::vector<uint64_t> digests(kRows);
      loop(keys.data(), values.data(), kRows, bytes, digests.data());
      for (size_t i = 0; i < kRows; ++i) {
        EXPECT_EQ(digests[i], RowDigest(keys[i], values[i], bytes)) << name << " " << bytes;
      }
    }
  }
  EXPECT_NE(FindRowDigests("base"), nullptr);
  EXPECT_EQ(FindRowDigests("none"), nullptr);
}

}  // namespace
}  // namespace msrec
