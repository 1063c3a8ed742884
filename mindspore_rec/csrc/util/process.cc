// SPDX-License-Identifier: Apache-2.0
#include "util/process.h"

#include <pthread.h>

namespace msrec {
namespace process_internal {

std::atomic<uint64_t> forks{0};

namespace {

const int registered = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });

}  // namespace
}  // namespace process_internal

void OwnerProcess::Refuse(const std::string& subject) const {
  throw ForkedProcess(
      subject + "belongs to process " + std::to_string(pid_) + " and is used in process " +
      std::to_string(::getpid()) +
      ", which was forked from it and has none of its threads, files and connections; make it in "
      "the process that uses it, after the fork, or start processes with the method 'spawn'");
}

}  // namespace msrec
