// SPDX-License-Identifier: Apache-2.0
//
// Threads that work beside the training step.
#pragma once

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace msrec {

// Gives way to the operators: the dense network runs in lockstep on all cores, and waits for the
// slowest of them. Called by the thread itself; without effect where the system does not let it.
inline void YieldToOperators() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 4);
}

}  // namespace msrec
