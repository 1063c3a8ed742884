// SPDX-License-Identifier: Apache-2.0
//
// PreparedLookups: training lookups of one table that are prepared but not finished. The owner of a
// PreparedLookups calls Table::FinishLookup to finish the lookups in order. Dropping unfinished
// lookups does not change the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "rows/batch.h"
#include "table/core/pending_rows.h"
#include "table/core/step_lookups.h"

namespace msrec {

struct PreparedLookups {
  struct One {
    std::unique_ptr<Batch> batch;
    StepLookups::Outstanding::node_type place;
  };

  std::vector<One> lookups;
  size_t finished = 0;  // number of finished lookups
  PendingRows pending;
  uint64_t inserted = 0;  // the table's count of inserted rows after the last call
  bool moved = false;     // true if other lookups have inserted rows since the first Prepare
};

}  // namespace msrec
