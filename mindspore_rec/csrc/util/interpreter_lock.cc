// SPDX-License-Identifier: Apache-2.0
#include "util/interpreter_lock.h"

namespace msrec {
namespace {

InterpreterLock the_lock{nullptr, nullptr};

}  // namespace

void SetInterpreterLock(const InterpreterLock& lock) { the_lock = lock; }

WithoutInterpreter::WithoutInterpreter()
    : state_(the_lock.release != nullptr ? the_lock.release() : nullptr) {}

WithoutInterpreter::~WithoutInterpreter() {
  if (state_ != nullptr) the_lock.take(state_);
}

}  // namespace msrec
