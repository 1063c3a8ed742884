// SPDX-License-Identifier: Apache-2.0
//
// DefaultFloatMode: sets IEEE 754's default arithmetic for a scope. Another library may have
// changed the thread's mode (denormal numbers as zeros, rounding towards zero, traps), and new
// threads inherit the mode. The bits of a row must not depend on the thread's floating-point mode.
#pragma once

#include <cstdint>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace msrec {

class DefaultFloatMode {
 public:
  DefaultFloatMode() : before_(Read()) {
    if (Mode(before_) != kDefault) Write(kDefault);
  }
  ~DefaultFloatMode() {
    if (Mode(before_) != kDefault) Write(before_);
  }
  DefaultFloatMode(const DefaultFloatMode&) = delete;
  DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

 private:
#if defined(__SSE2__)
  using Register = uint32_t;
  static constexpr Register kDefault = 0x1f80;                              // no traps
  static Register Mode(Register mxcsr) { return mxcsr & ~Register{0x3f}; }  // without the flags
  static Register Read() { return _mm_getcsr(); }
  static void Write(Register mxcsr) {
    _mm_setcsr(mxcsr);
    asm volatile("" : : : "memory");  // what is loaded after this is computed after it
  }
#elif defined(__aarch64__)
  using Register = uint64_t;
  static constexpr Register kDefault = 0;
  static Register Mode(Register fpcr) { return fpcr; }
  static Register Read() {
    Register fpcr;
    asm volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
  }
  static void Write(Register fpcr) { asm volatile("msr fpcr, %0" : : "r"(fpcr) : "memory"); }
#else
  using Register = uint32_t;
  static constexpr Register kDefault = 0;
  static Register Mode(Register mode) { return mode; }
  static Register Read() { return 0; }
  static void Write(Register) {}
#endif

  const Register before_;
};

}  // namespace msrec
