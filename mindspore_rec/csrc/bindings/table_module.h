// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace msrec {

// Adds the class Table, the exceptions of Table, and the function state_width to the module.
void BindTable(pybind11::module_* module);

}  // namespace msrec
