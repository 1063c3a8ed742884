// SPDX-License-Identifier: Apache-2.0
//
// Background threads, which work in parallel with the training step.
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

// True if the calling thread is a background thread. Background threads must not join each other or
// themselves.
inline bool& IsBackground() {
  thread_local bool is = false;
  return is;
}

// Starts a thread that runs fn. If no thread can be started, throws std::runtime_error; the message
// contains the thread's purpose.
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

// Marks the calling thread as a background thread, and lowers its priority. The dense network runs
// on all cores at the same pace, so the slowest core determines the network's speed. If the system
// refuses the lower priority, the priority does not change.
inline void YieldToOperators() {
  IsBackground() = true;
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 4);
}

}  // namespace msrec
