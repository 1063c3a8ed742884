// SPDX-License-Identifier: Apache-2.0
//
// Threads that work beside the training step.
#pragma once

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace msrec {

// Whether this thread is one of those. They must not wait for each other's end, nor for their own.
inline bool& IsBackground() {
  thread_local bool is = false;
  return is;
}

// A thread that runs fn. Throws std::runtime_error that says what it is for, where the system or
// its memory allow no more threads.
template <typename Fn>
std::thread StartThread(const char* purpose, Fn fn) {
  try {
    return std::thread(std::move(fn));
  } catch (const std::exception& error) {
    throw std::runtime_error(std::string("no thread could be started to ") + purpose + " (" +
                             error.what() +
                             "): look at ulimit -u, ulimit -v and the pids limit of the container");
  }
}

// Gives way to the operators: the dense network runs in lockstep on all cores, and waits for the
// slowest of them. Called by the thread itself; without effect where the system does not let it.
inline void YieldToOperators() {
  IsBackground() = true;
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 4);
}

}  // namespace msrec
