// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "digest.h"

// With --digest, prints a digest of a table's life on this process's instruction set and ends: a
// test runs its own program so, once for each set.
int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--digest") == 0) {
    std::printf("%s\n", msrec::TableDigest().c_str());
    return 0;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
