// SPDX-License-Identifier: Apache-2.0
//
// Binds the functions that do not belong to a table: threads, memory, hashes, checksums and row
// sizes.
#pragma once

#include <pybind11/pybind11.h>

namespace msrec {

void BindLibrary(pybind11::module_& m);

}  // namespace msrec
