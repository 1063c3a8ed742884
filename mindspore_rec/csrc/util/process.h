// SPDX-License-Identifier: Apache-2.0
//
// Which process this is: how what belongs to one process is told in a child that was forked from
// it. There it is a copy at best, of a moment when other threads may have been at work on it, and
// the threads themselves stayed with the parent.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace msrec {

struct ForkedProcess : std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace process_internal {
extern std::atomic<uint64_t> forks;
}

// How many forks there are between the first process that loaded the library and this one. No
// process has the number of one that it descends from (the system gives process ids again).
inline uint64_t ForkCount() { return process_internal::forks.load(std::memory_order_relaxed); }

// The process that made something.
class OwnerProcess {
 public:
  bool here() const { return forks_ == ForkCount(); }
  // Throws ForkedProcess where this is another one. `subject` begins the message.
  void Require(const std::string& subject) const {
    if (!here()) Refuse(subject);
  }

 private:
  [[noreturn]] void Refuse(const std::string& subject) const;

  uint64_t forks_ = ForkCount();
  pid_t pid_ = ::getpid();
};

// Deletes what this process made. A forked child leaves alone what it has from its parent: files,
// locks and connections are the parent's, and so are the threads that would have to be joined.
struct DeleteInOwner {
  OwnerProcess owner;
  template <typename T>
  void operator()(T* made) const {
    if (owner.here()) delete made;
  }
};

}  // namespace msrec
