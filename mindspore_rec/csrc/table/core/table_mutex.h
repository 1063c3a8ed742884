// SPDX-License-Identifier: Apache-2.0
//
// The mutex of a table. The mutex can be locked only by the class Hold. While Hold waits, Hold
// releases the interpreter's lock (GIL), to avoid the deadlocks that a plain mutex would cause.
// Locking throws in a forked child. Locking also throws if the same thread is already inside a call
// on the same table.
#pragma once

#include <mutex>
#include <string>
#include <utility>

#include "util/interpreter_lock.h"
#include "util/process.h"

namespace msrec {

class TableMutex {
 public:
  // `subject` is the beginning of messages, for example "table 'x': ".
  explicit TableMutex(std::string subject) : subject_(std::move(subject)) {}

  // Locks the mutex until the end of the scope.
  class Hold {
   public:
    // Throws ForkedProcess in a forked child, and throws std::runtime_error if the thread has
    // already locked the mutex.
    explicit Hold(TableMutex* mutex);
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

    // Return the lock, so that the caller can wait on a condition or unlock the mutex temporarily.
    std::unique_lock<std::mutex>* lock() { return &lock_; }

   private:
    const WithoutInterpreter without_;  // first, so that the GIL is acquired again after the mutex
                                        // is unlocked
    const TableMutex* const mutex_;
    std::unique_lock<std::mutex> lock_;
    Hold* const outer_;
  };

  // True if this process created the mutex.
  bool own_process() const { return owner_.here(); }
  void Require() const { owner_.Require(subject_); }
  // True if this thread is inside a call on any table.
  static bool InsideCall();

 private:
  std::mutex mutex_;
  const std::string subject_;
  const OwnerProcess owner_;
};

}  // namespace msrec
