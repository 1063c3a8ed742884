// SPDX-License-Identifier: Apache-2.0
//
// Releases Python's lock while the core waits. A thread that has Python's lock must not wait for a
// table. The thread that uses the table may need Python's lock, because a tier may be a Python
// object. The core does not depend on Python, so the Python module sets the functions that release
// the lock.
#pragma once

namespace msrec {

struct InterpreterLock {
  // Releases the lock, and returns the argument for a later call of `take`. Returns null if the
  // calling thread does not have the lock.
  void* (*release)();
  void (*take)(void* state);
};

// SetInterpreterLock must be called only once, before any other thread uses the core. Without a
// call of SetInterpreterLock, the core assumes that there is no interpreter.
void SetInterpreterLock(const InterpreterLock& lock);

// During the lifetime of this object, the calling thread does not have the interpreter's lock.
class WithoutInterpreter {
 public:
  WithoutInterpreter();
  ~WithoutInterpreter();
  WithoutInterpreter(const WithoutInterpreter&) = delete;
  WithoutInterpreter& operator=(const WithoutInterpreter&) = delete;

 private:
  void* const state_;
};

}  // namespace msrec
