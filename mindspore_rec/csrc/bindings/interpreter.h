// SPDX-License-Identifier: Apache-2.0
//
// Installs the functions with which C++ code releases Python's GIL (util/interpreter_lock.h).
#pragma once

namespace msrec {

// The module calls this function when it is loaded.
void InstallInterpreterLock();

}  // namespace msrec
