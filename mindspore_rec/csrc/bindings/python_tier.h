// SPDX-License-Identifier: Apache-2.0
//
// Tiers that Python code creates and passes to tables. A tier is an SsdStore, or an object with the
// attribute row_bytes and the methods read, write, erase, flush, size, scan, clear, stats and
// close. An example is mindspore_rec/common/tiers/redis/tier.py. A Python exception of a tier is
// translated to a std::runtime_error, and RowDamagedError is translated to RowDamaged.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "tier/tier.h"

namespace msrec {

// Sets the Python exception type that is translated to RowDamaged.
void SetRowDamagedError(PyObject* type);

// Requires the GIL. Any thread may use and release the tier without the GIL.
std::shared_ptr<Tier> TierOf(const pybind11::object& object);

}  // namespace msrec
