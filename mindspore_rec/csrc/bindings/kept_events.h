// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace msrec {

// Python binding: a function that keeps, in each row, the last events of one user.
void BindKeptEvents(pybind11::module_* module);

}  // namespace msrec
