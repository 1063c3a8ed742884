// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace msrec {

// Adds the class Table, its exceptions, and the width of an optimizer's state to the module.
void BindTable(pybind11::module_* module);

}  // namespace msrec
