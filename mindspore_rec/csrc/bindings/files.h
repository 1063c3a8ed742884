// SPDX-License-Identifier: Apache-2.0
//
// File access for tiers written in Python (tier/env.h). Adds the function make_directories and the
// class FileLock to the Python module. A FileLock lets only one process write to a directory.
#pragma once

#include <pybind11/pybind11.h>

namespace msrec {

void BindFiles(pybind11::module_& m);

}  // namespace msrec
