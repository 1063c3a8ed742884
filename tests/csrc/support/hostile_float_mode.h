// SPDX-License-Identifier: Apache-2.0
//
// A floating-point mode that changes bits: denormal numbers are zeros, and results are truncated.
#pragma once

#include <cstdint>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace msrec {

#if defined(__SSE2__)
inline uint64_t ReadMode() { return _mm_getcsr() & ~0x3fu; }  // without the flags
inline void WriteMode(uint64_t mode) { _mm_setcsr(static_cast<uint32_t>(mode)); }
constexpr uint64_t kHostile = 0x8000 | 0x0040 | 0x6000 | 0x1f80;  // flush, zeros, truncate
#elif defined(__aarch64__)
inline uint64_t ReadMode() {
  uint64_t mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
}
inline void WriteMode(uint64_t mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
constexpr uint64_t kHostile = 1u << 24 | 3u << 22;
#endif

// Sets this mode for a scope, as a library compiled with -ffast-math does to the thread that loads
// it.
class HostileMode {
 public:
  HostileMode() : before_(ReadMode()) { WriteMode(kHostile); }
  ~HostileMode() { WriteMode(before_); }

 private:
  const uint64_t before_;
};

}  // namespace msrec
