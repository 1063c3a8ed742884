// SPDX-License-Identifier: Apache-2.0
//
// Meter: while one lives, callgrind counts instructions. It is started with --instr-atstart=no, so
// nothing else is counted; without valgrind a meter does nothing.
#pragma once

#include <valgrind/callgrind.h>

namespace msrec {

class Meter {
 public:
  Meter() { CALLGRIND_START_INSTRUMENTATION; }
  ~Meter() { CALLGRIND_STOP_INSTRUMENTATION; }
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;
};

}  // namespace msrec
