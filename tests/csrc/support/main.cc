// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "digest.h"
#include "test_device.h"

// With --digest, prints a digest of a table's life on this process's instruction set and ends, and
// with --lives what tables and tiers do with this process's secrets, with --secrets some hashes by
// them: tests run their own program so.
int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--digest") == 0) {
    std::printf("%s\n", msrec::TableDigest().c_str());
    return 0;
  }
  if (argc == 2 && std::strcmp(argv[1], "--lives") == 0) {
    std::printf("%s", msrec::TableLives().c_str());
    return 0;
  }
  if (argc == 2 && std::strcmp(argv[1], "--secrets") == 0) {
    std::printf("%s", msrec::TableSecrets().c_str());
    return 0;
  }
  ::testing::InitGoogleTest(&argc, argv);
  msrec::UseDeviceOfEnvironment();
  return RUN_ALL_TESTS();
}
