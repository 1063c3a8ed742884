// SPDX-License-Identifier: Apache-2.0
//
// The class SsdStore of the Python module: an SsdTier on NumPy arrays.
#pragma once

#include <pybind11/pybind11.h>

namespace msrec {

void BindSsdStore(pybind11::module_& m);

}  // namespace msrec
