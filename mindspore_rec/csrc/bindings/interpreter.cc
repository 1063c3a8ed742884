// SPDX-License-Identifier: Apache-2.0
#include "bindings/interpreter.h"

#include <Python.h>

#include "util/interpreter_lock.h"

namespace msrec {
namespace {

void* ReleaseIfHeld() {
  if (!Py_IsInitialized()) return nullptr;
  PyThreadState* mine = PyGILState_GetThisThreadState();
#if PY_VERSION_HEX >= 0x030d0000
  PyThreadState* holder = PyThreadState_GetUnchecked();
#else
  PyThreadState* holder = _PyThreadState_UncheckedGet();
#endif
  // PyGILState_Check cannot be used here, because with subinterpreters PyGILState_Check returns
  // true for every thread.
  return mine != nullptr && mine == holder ? PyEval_SaveThread() : nullptr;
}

void Take(void* state) { PyEval_RestoreThread(static_cast<PyThreadState*>(state)); }

}  // namespace

void InstallInterpreterLock() { SetInterpreterLock({&ReleaseIfHeld, &Take}); }

}  // namespace msrec
