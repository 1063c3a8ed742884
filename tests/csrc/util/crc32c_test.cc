// SPDX-License-Identifier: Apache-2.0
#include "util/crc32c.h"

#include <gtest/gtest.h>

#include <string>

#include "testing.h"

namespace msrec {
namespace {

// RFC 3720, B.4.
TEST(Crc32c, KnownValues) {
  EXPECT_EQ(Crc32c(0, "123456789", 9), 0xe3069283u);
  EXPECT_EQ(Crc32c(0, std::string(32, '\0').data(), 32), 0x8a9136aau);
  EXPECT_EQ(Crc32c(0, std::string(32, '\xff').data(), 32), 0x62a8ab43u);
  EXPECT_EQ(Crc32cByTables(0, "123456789", 9), 0xe3069283u);
}

TEST(Crc32c, InstructionAndTablesAgreeAndPartsJoin) {
  Rng rng(1);
  std::string data(300, '\0');
  for (char& c : data) c = static_cast<char>(rng.Bits());
  for (size_t size = 0; size <= 260; ++size) {
    const size_t start = rng.Below(32);
    const char* p = data.data() + start;
    const uint32_t crc = Crc32c(0, p, size);
    ASSERT_EQ(Crc32cByTables(0, p, size), crc) << size;
    const size_t cut = rng.Below(size + 1);
    ASSERT_EQ(Crc32c(Crc32c(0, p, cut), p + cut, size - cut), crc) << size;
  }
}

}  // namespace
}  // namespace msrec
