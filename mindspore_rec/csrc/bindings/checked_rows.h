// SPDX-License-Identifier: Apache-2.0
//
// Rows with checksums (tier/checked_rows.h), for tiers written in Python.
#pragma once

#include <pybind11/pybind11.h>

namespace msrec {

void BindCheckedRows(pybind11::module_* module);

}  // namespace msrec
