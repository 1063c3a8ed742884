// SPDX-License-Identifier: Apache-2.0
//
// A table has the same bits on every instruction set and with any number of threads.
#include "digest.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

#include "rows/kernels.h"
#include "testing.h"

namespace msrec {
namespace {

std::string DigestOf(const char* simd) {
  std::array<char, 4096> self{};
  if (readlink("/proc/self/exe", self.data(), self.size() - 1) <= 0) return "no /proc";
  const std::string command =
      std::string("MINDSPORE_REC_SIMD=") + simd + " '" + self.data() + "' --digest";
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 64> line{};
  if (std::fgets(line.data(), line.size(), pipe) == nullptr) line[0] = 0;
  return pclose(pipe) == 0 ? std::string(line.data()) : "failed";
}

TEST(TableBits, SameForEveryNumberOfThreads) {
  std::string one;
  for (const int n : {1, 2, 3}) {
    Threads threads(n);
    const std::string digest = TableDigest();
    if (n == 1) one = digest;
    EXPECT_EQ(digest, one) << n << " threads";
  }
}

TEST(TableBits, SameForEveryInstructionSet) {
  const std::string here = TableDigest() + "\n";
  for (const char* simd : {"base", "avx2", "avx512"}) {
    if (FindKernels(simd) == nullptr) continue;
    EXPECT_EQ(DigestOf(simd), here) << simd;
  }
}

}  // namespace
}  // namespace msrec
