// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace msrec {

// Functions of the Python module that rank items by the products of vectors.
void BindRanking(pybind11::module_* module);

}  // namespace msrec
