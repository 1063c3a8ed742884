// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace msrec {

// Adds the functions that rank items by dot products to the Python module.
void BindRanking(pybind11::module_* module);

}  // namespace msrec
