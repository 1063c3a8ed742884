// SPDX-License-Identifier: Apache-2.0
//
// Detects forked children, so that objects refuse to work in a process that did not create them. A
// child's copies of objects may be inconsistent, because other threads may have been changing the
// objects at the fork. Of the parent's threads, only the thread that called fork exists in the
// child.
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

// Returns the number of forks between this process and the first process that loaded the library.
// The result of ForkCount is smaller in each ancestor of this process. The process id of a child
// may equal the id of an ancestor that has ended, because the system reuses process ids.
inline uint64_t ForkCount() { return process_internal::forks.load(std::memory_order_relaxed); }

// Records which process created an object.
class OwnerProcess {
 public:
  bool here() const { return forks_ == ForkCount(); }
  // Throws ForkedProcess if the current process did not create the object. `subject` is the
  // beginning of the message.
  void Require(const std::string& subject) const {
    if (!here()) Refuse(subject);
  }

 private:
  [[noreturn]] void Refuse(const std::string& subject) const;

  uint64_t forks_ = ForkCount();
  pid_t pid_ = ::getpid();
};

// Deletes objects only in the process that created them. A forked child must not destroy its copies
// of objects, because files, locks, connections and joinable threads belong to the parent.
struct DeleteInOwner {
  OwnerProcess owner;
  template <typename T>
  void operator()(T* made) const {
    if (owner.here()) delete made;
  }
};

}  // namespace msrec
