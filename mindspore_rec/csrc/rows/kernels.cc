// SPDX-License-Identifier: Apache-2.0
#include "rows/kernels.h"

#ifdef MSREC_VECTOR_SETS
#include <cpuid.h>
#endif

#include <cstdlib>
#include <cstring>

namespace msrec {

extern const Kernels kKernelsBase;
#ifdef MSREC_VECTOR_SETS
extern const Kernels kKernelsAvx2;
extern const Kernels kKernelsAvx512;
#endif

#ifdef MSREC_VECTOR_SETS
// __builtin_cpu_supports("f16c") is not used, because older versions of clang reject the name
// "f16c".
static bool HasF16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

const Kernels* FindKernels(const char* name) {
  if (std::strcmp(name, "base") == 0) return &kKernelsBase;
#ifdef MSREC_VECTOR_SETS
  __builtin_cpu_init();
  if (std::strcmp(name, "avx2") == 0 && __builtin_cpu_supports("avx2") && HasF16c()) {
    return &kKernelsAvx2;
  }
  if (std::strcmp(name, "avx512") == 0 && HasF16c() && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return &kKernelsAvx512;
  }
#endif
  return nullptr;
}

const Kernels& ActiveKernels() {
  static const Kernels& active = []() -> const Kernels& {
    if (const char* wanted = std::getenv("MINDSPORE_REC_SIMD")) {
      if (const Kernels* found = FindKernels(wanted)) return *found;
    }
    for (const char* name : {"avx512", "avx2"}) {
      if (const Kernels* found = FindKernels(name)) return *found;
    }
    return kKernelsBase;
  }();
  return active;
}

}  // namespace msrec
