// SPDX-License-Identifier: Apache-2.0
//
// The workers of a job, as the Python module has them.
#pragma once

#include <pybind11/pybind11.h>

namespace msrec {

void BindWorkers(pybind11::module_& m);

}  // namespace msrec
