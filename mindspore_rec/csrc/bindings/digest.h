// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace msrec {

// Functions of the Python module that compute digests of rows in arrays.
void BindDigest(pybind11::module_* module);

}  // namespace msrec
