// SPDX-License-Identifier: Apache-2.0
#include "table/core/table_mutex.h"

#include <stdexcept>

namespace msrec {
namespace {

thread_local TableMutex::Hold* innermost_hold = nullptr;  // of the calls this thread is inside

}  // namespace

TableMutex::Hold::Hold(TableMutex* mutex) : mutex_(mutex), outer_(innermost_hold) {
  mutex->owner_.Require(mutex->subject_);
  for (const Hold* each = outer_; each != nullptr; each = each->outer_) {
    if (each->mutex_ != mutex) continue;
    throw std::runtime_error(mutex->subject_ +
                             "is called from inside one of its own calls (by a tier below it, or "
                             "by the function that takes exported parts), which would never end");
  }
  lock_ = std::unique_lock<std::mutex>(mutex->mutex_);
  innermost_hold = this;
}

TableMutex::Hold::~Hold() { innermost_hold = outer_; }

bool TableMutex::InsideCall() { return innermost_hold != nullptr; }

}  // namespace msrec
