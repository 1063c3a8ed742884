// SPDX-License-Identifier: Apache-2.0
//
// TableParts: the rows of a table wherever they are: those of the core, the cache above lower
// tiers, and rows of int8 or int4.
#pragma once

#include <memory>

#include "readers/quantised_rows.h"
#include "table/cache/row_cache.h"
#include "table/core/table_core.h"

namespace msrec {

struct TableParts : TableCore {
  using TableCore::TableCore;

  std::unique_ptr<RowCache> cache;  // null: all rows are in host memory
  // Rows of int8 or int4 in place of those of the shards, which are empty then; null: there are
  // none.
  std::unique_ptr<QuantisedRows> quantised;
};

}  // namespace msrec
