// SPDX-License-Identifier: Apache-2.0
//
// The workers of a job, for the Python module.
#pragma once

#include <pybind11/pybind11.h>

namespace msrec {

void BindWorkers(pybind11::module_& m);

}  // namespace msrec
