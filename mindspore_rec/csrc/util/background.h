// SPDX-License-Identifier: Apache-2.0
//
// Threads that work beside the training step.
#pragma once

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace msrec {

// Whether this thread is one of those. They must not wait for each other's end, nor for their own.
inline bool& IsBackground() {
  thread_local bool is = false;
  return is;
}

// Gives way to the operators: the dense network runs in lockstep on all cores, and waits for the
// slowest of them. Called by the thread itself; without effect where the system does not let it.
inline void YieldToOperators() {
  IsBackground() = true;
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 4);
}

}  // namespace msrec
