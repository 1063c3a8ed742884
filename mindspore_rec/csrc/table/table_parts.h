// SPDX-License-Identifier: Apache-2.0
//
// TableParts: the objects that store a table's rows: shards, the cache above lower tiers, and the
// int8 or int4 rows.
#pragma once

#include <memory>

#include "readers/quantised_rows.h"
#include "table/cache/row_cache.h"
#include "table/core/table_core.h"

namespace msrec {

struct TableParts : TableCore {
  using TableCore::TableCore;

  std::unique_ptr<RowCache> cache;  // null: all rows are in host memory
  // Rows of int8 or int4, if the table has such rows; null if the rows are in the shards.
  std::unique_ptr<QuantisedRows> quantised;
};

}  // namespace msrec
