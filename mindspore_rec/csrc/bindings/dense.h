// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace msrec {

// Binds oneDNN's library and the class of dense programs.
void BindDense(pybind11::module_& m);

}  // namespace msrec
