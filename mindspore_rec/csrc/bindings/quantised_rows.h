// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace msrec {

// Binds the class QuantisedRows of the Python module.
void BindQuantisedRows(pybind11::module_* module);

}  // namespace msrec
