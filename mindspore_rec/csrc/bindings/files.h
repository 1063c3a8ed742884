// SPDX-License-Identifier: Apache-2.0
//
// The tiers' file access (tier/env.h) for the Python side: the class FileLock, the lock
// of a directory that one process writes to, and make_directories.
#pragma once

#include <pybind11/pybind11.h>

namespace msrec {

void BindFiles(pybind11::module_& m);

}  // namespace msrec
