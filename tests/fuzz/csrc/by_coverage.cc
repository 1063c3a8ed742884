// SPDX-License-Identifier: Apache-2.0
//
// Entry of libFuzzer, which chooses inputs by the code that they reach. MSREC_FUZZ_TARGET names the
// target. An exception that a target lets through ends the program, and libFuzzer keeps the input.
#include <cstdio>
#include <cstdlib>

#include "fuzzer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const msrec::FuzzTarget target = [] {
    const char* name = std::getenv("MSREC_FUZZ_TARGET");
    const auto found = msrec::FuzzTargets().find(name == nullptr ? "" : name);
    if (found != msrec::FuzzTargets().end()) return found->second;
    std::fprintf(stderr, "MSREC_FUZZ_TARGET must name a target:");
    for (const auto& [each, of] : msrec::FuzzTargets()) std::fprintf(stderr, " %s", each.c_str());
    std::fprintf(stderr, "\n");
    std::_Exit(2);
  }();
  target(data, size);
  return 0;
}
