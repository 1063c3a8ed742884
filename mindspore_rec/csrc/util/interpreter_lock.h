// SPDX-License-Identifier: Apache-2.0
//
// The interpreter's lock, as far as the core has to know of it: who holds it must not wait for a
// table, since whoever has the table may need it (a tier that is a Python object). The core does
// not know Python; the module says how the lock is released.
#pragma once

namespace msrec {

struct InterpreterLock {
  // Releases it where the calling thread holds it, and gives what `take` wants back; else null.
  void* (*release)();
  void (*take)(void* state);
};

// Once, before any other thread uses the core. Without it there is no interpreter.
void SetInterpreterLock(const InterpreterLock& lock);

// While it lives, its thread does not hold the interpreter's lock.
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
