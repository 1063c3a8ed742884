// SPDX-License-Identifier: Apache-2.0
//
// The mutex of a table. There is one way to lock it, and that one cannot hang where a plain mutex
// would: with the interpreter's lock held it is released meanwhile; in a forked child, and inside
// another call of the same thread on the same table, it throws.
#pragma once

#include <mutex>
#include <string>
#include <utility>

#include "util/interpreter_lock.h"
#include "util/process.h"

namespace msrec {

class TableMutex {
 public:
  // `subject` begins the messages: "table 'x': ".
  explicit TableMutex(std::string subject) : subject_(std::move(subject)) {}

  // Has the mutex for its scope.
  class Hold {
   public:
    // Throws ForkedProcess, and std::runtime_error where the thread has it already.
    explicit Hold(TableMutex* mutex);
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

    // To wait on a condition, or to let others in for a while.
    std::unique_lock<std::mutex>* lock() { return &lock_; }

   private:
    const WithoutInterpreter without_;  // first: it is given back when the mutex is
    const TableMutex* const mutex_;
    std::unique_lock<std::mutex> lock_;
    Hold* const outer_;
  };

  // Whether this is the process that made it.
  bool own_process() const { return owner_.here(); }
  void Require() const { owner_.Require(subject_); }
  // Whether this thread is inside a call on some table.
  static bool InsideCall();

 private:
  std::mutex mutex_;
  const std::string subject_;
  const OwnerProcess owner_;
};

}  // namespace msrec
