// SPDX-License-Identifier: Apache-2.0
//
// TableEngine: the parts that do a table's work, and the work that takes several of them. Table and
// the groups of calls that it has (TableDevice, TableTiers, ...) share one; whoever calls it or its
// parts holds the table's mutex (table_guard.h).
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

  // Forget the lookups and gradients of the step.
  void ForgetStep();
  // Do what follows the update of rows: the clock, and one step's share of evicting.
  void FinishStep();
  // Call fn(ids, first) with all ids, in parts where there are lower tiers: all rows would need
  // more memory than the host may take. Each part is done as a whole, or not at all; where one
  // fails, the message says how far it came.
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
