// SPDX-License-Identifier: Apache-2.0
//
// Releases Python's lock while the core waits. A thread that holds it must not wait for a table,
// since the thread that has the table may need it (for a tier that is a Python object). The core
// does not depend on Python: the module sets how the lock is released.
#pragma once

namespace msrec {

struct InterpreterLock {
  // Releases the lock and returns a token for `take`; null if the calling thread does not hold it.
  void* (*release)();
  void (*take)(void* state);
};

// Called once, before any other thread uses the core; without it there is no interpreter.
void SetInterpreterLock(const InterpreterLock& lock);

// Releases the interpreter's lock of the calling thread for its lifetime.
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
