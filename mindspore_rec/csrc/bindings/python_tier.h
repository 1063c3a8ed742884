// SPDX-License-Identifier: Apache-2.0
//
// Tiers that Python made, as tables see them: a SsdStore, or an object with the methods read,
// write, erase, flush, size, scan, clear, stats and close (mindspore_rec/common/tiers/redis/tier.py
// is one). What they raise is a std::runtime_error here; RowDamagedError is RowDamaged.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "tier/tier.h"

namespace msrec {

// Sets the type that Python knows RowDamaged as.
void SetRowDamagedError(PyObject* type);

// Requires the GIL; the tier itself may be used and dropped without it, by any thread.
std::shared_ptr<Tier> TierOf(const pybind11::object& object);

}  // namespace msrec
