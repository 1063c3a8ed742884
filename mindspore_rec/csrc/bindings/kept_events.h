// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace msrec {

// The function of the Python module that keeps the last events of users in rows.
void BindKeptEvents(pybind11::module_* module);

}  // namespace msrec
