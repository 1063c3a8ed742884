// SPDX-License-Identifier: Apache-2.0
//
// How the core releases the interpreter's lock (util/interpreter_lock.h).
#pragma once

namespace msrec {

// When the module is loaded.
void InstallInterpreterLock();

}  // namespace msrec
