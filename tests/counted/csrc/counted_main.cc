// SPDX-License-Identifier: Apache-2.0
//
// The program whose instructions `bash build.sh count` counts, a case a run: msrec_counted CASE.
// Without a case it says which there are; with --setting what counts depend on.
#include <gnu/libc-version.h>

#include <cstdio>
#include <cstring>
#include <exception>

#include "cases.h"
#include "util/thread_pool.h"

namespace {

struct Case {
  const char* name;
  void (*run)();
};

constexpr Case kCases[] = {
    {"step_float32", msrec::CountStepFloat32},
    {"step_bfloat16", msrec::CountStepBfloat16},
    {"lookup", msrec::CountLookup},
    {"lookup_pooled", msrec::CountLookupPooled},
    {"lookup_int8", msrec::CountLookupInt8},
    {"ssd_read", msrec::CountSsdRead},
    {"step_and_delta", msrec::CountStepAndDelta},
    {"step_and_delta_digest", msrec::CountStepAndDigest},
    {"delta_apply", msrec::CountDeltaApply},
    {"delta_apply_shared", msrec::CountDeltaOfShared},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) {
    for (const Case& each : kCases) std::printf("%s\n", each.name);
    return 0;
  }
  if (std::strcmp(argv[1], "--setting") == 0) {
    std::printf("%s %s\n", __VERSION__, gnu_get_libc_version());
    return 0;
  }
  msrec::ThreadPool::Global().SetNumThreads(1);
  for (const Case& each : kCases) {
    if (std::strcmp(each.name, argv[1]) != 0) continue;
    try {
      each.run();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", each.name, error.what());
      return 1;
    }
    return 0;
  }
  std::fprintf(stderr, "there is no case '%s'\n", argv[1]);
  return 2;
}
