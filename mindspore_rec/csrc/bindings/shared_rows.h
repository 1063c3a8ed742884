// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace msrec {

// Adds SharedMemory, SharedWriter and SharedReader to the module.
void BindSharedRows(pybind11::module_* module);

}  // namespace msrec
