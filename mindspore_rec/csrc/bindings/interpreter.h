// SPDX-License-Identifier: Apache-2.0
//
// Releases the interpreter's lock for the core (util/interpreter_lock.h).
#pragma once

namespace msrec {

// The module calls this function when it is loaded.
void InstallInterpreterLock();

}  // namespace msrec
