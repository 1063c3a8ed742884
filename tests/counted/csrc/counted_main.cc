// SPDX-License-Identifier: Apache-2.0
//
// The program whose instructions `bash build.sh count` counts, a case a run: msrec_counted CASE.
// Without a case it says which there are; with --setting what counts depend on, a line each: the
// compiler, the C library, the processor.
#include <gnu/libc-version.h>
#include <sys/auxv.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

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

// Prints what a program can see of the processor, and so choose code by. Under valgrind this is the
// processor that valgrind plays, which is the same for many real ones.
void PrintProcessor() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d))
    std::printf("%.4s%.4s%.4s", reinterpret_cast<char*>(&b), reinterpret_cast<char*>(&d),
                reinterpret_cast<char*>(&c));
  if (__get_cpuid(1, &a, &b, &c, &d)) std::printf(" %08x:%08x:%08x", a, c, d);
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) std::printf(" %08x:%08x:%08x", b, c, d);
  if (__get_cpuid(0x80000001, &a, &b, &c, &d)) std::printf(" %08x:%08x", c, d);
#else
  std::printf("%s %lx:%lx", reinterpret_cast<const char*>(getauxval(AT_PLATFORM)),
              getauxval(AT_HWCAP), getauxval(AT_HWCAP2));
#endif
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) {
    for (const Case& each : kCases) std::printf("%s\n", each.name);
    return 0;
  }
  if (std::strcmp(argv[1], "--setting") == 0) {
    std::printf("%s\n%s\n", __VERSION__, gnu_get_libc_version());
    PrintProcessor();
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
