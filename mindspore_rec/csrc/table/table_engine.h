// SPDX-License-Identifier: Apache-2.0
//
// TableEngine: the parts of a table, and the operations that need several parts. Table and the
// classes TableDevice, TableTiers, ... share one engine. A caller of the engine or of the engine's
// parts must have locked the table's mutex (table_guard.h).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "rows/batch.h"
#include "table/bag_pooling.h"
#include "table/batch_lookup.h"
#include "table/device_cache.h"
#include "table/evictor.h"
#include "table/quantised_part.h"
#include "table/row_handles.h"
#include "table/row_optimizer.h"
#include "table/row_reader.h"
#include "table/table_parts.h"

namespace msrec {

struct TableEngine {
  explicit TableEngine(const TableConfig& config) : core(config) {}
  TableEngine(const TableEngine&) = delete;
  TableEngine& operator=(const TableEngine&) = delete;

  // Drop the lookups and gradients of the step.
  void ForgetStep();
  // Do the work that follows an update of rows: advance the clock, evict the due rows in one slice
  // of the table, and evict rows over the capacity.
  void FinishStep();
  // Call fn(part, first) for each part of the ids, where `first` is the index of the part's first
  // id in `ids`. If the table has lower tiers, there may be several parts, because all rows
  // together might not fit into host memory. Each part is done completely or not at all. If a part
  // fails, the error message contains the number of ids in completed parts.
  void ForEachPart(const IdView& ids, const char* what, const char* done,
                   const std::function<void(const IdView&, size_t)>& fn);

  TableParts core;
  BatchLookup lookup{&core};
  RowReader reader{&core};
  BagPooling pooling{&core};
  RowOptimizer optimizer{&core};
  RowHandles handles{&core};
  Evictor evictor{&core, &reader};
  QuantisedPart quantised{&core};
  std::unique_ptr<DeviceCache> device_cache;  // null: there is none
};

}  // namespace msrec
