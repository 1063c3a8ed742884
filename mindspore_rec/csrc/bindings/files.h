// SPDX-License-Identifier: Apache-2.0
//
// File access for tiers written in Python (tier/env.h). The file binds make_directories and
// FileLock, the lock of a directory that only one process may write to.
#pragma once

#include <pybind11/pybind11.h>

namespace msrec {

void BindFiles(pybind11::module_& m);

}  // namespace msrec
