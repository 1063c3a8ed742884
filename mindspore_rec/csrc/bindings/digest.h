// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

namespace msrec {

// Throws unless a table can be divided into `parts` parts.
void CheckParts(uint32_t parts);

// Functions of the Python module that compute digests of rows in arrays.
void BindDigest(pybind11::module_* module);

}  // namespace msrec
