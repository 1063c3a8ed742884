// SPDX-License-Identifier: Apache-2.0
//
// Prints digests of the lives of tables, for comparison with another processor: in the default
// floating-point mode, and in a mode that takes denormal numbers for zeros, as MindSpore sets it.
#include <cstdio>
#include <string>

#include "digest.h"
#include "hostile_float_mode.h"

int main() {
  std::printf("%s\n", msrec::TableDigest().c_str());
  std::string hostile;
  {
    const msrec::HostileMode mode;
    hostile = msrec::TableDigest();
  }
  std::printf("%s\n", hostile.c_str());
  return 0;
}
