// SPDX-License-Identifier: Apache-2.0
//
// What the module makes of a table's tiers.
#pragma once

#include <pybind11/pybind11.h>

#include "table/below.h"

namespace msrec {

// levels: dicts of "kind", "open" (callable of row_bytes and generation that gives a tier) and, if
// there is a limit, "max_rows".
CacheSettings MakeCacheSettings(int64_t host_rows, int64_t host_bytes, const std::string& policy,
                                const pybind11::list& levels);

}  // namespace msrec
