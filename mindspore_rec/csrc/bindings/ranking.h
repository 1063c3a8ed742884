// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace msrec {

// Adds to the Python module the functions that rank items by dot products.
void BindRanking(pybind11::module_* module);

}  // namespace msrec
