// SPDX-License-Identifier: Apache-2.0
//
// TableEviction: the calls on which rows leave a table, and when. As Table: from any thread, under
// the table's mutex, with its exceptions.
#pragma once

#include <cstddef>
#include <vector>

#include "policy/eviction.h"
#include "policy/eviction_log.h"
#include "rows/batch.h"
#include "table/table_engine.h"

namespace msrec {

class TableEviction {
 public:
  // Requires: engine outlives it.
  explicit TableEviction(TableEngine* engine) : engine_(*engine), core_(engine->core) {}

  // Set how rows are evicted; rows due under the settings before go first. The order cannot change
  // to or from one that keeps a score.
  void Set(const Eviction& eviction);
  // Move the horizon to the clock and apply all rules: in slices of the following steps, or at
  // once. If that throws, the eviction was triggered, and the following steps do the rest.
  void Evict(bool at_once);
  // Free the rows that are due already.
  void EvictAll();
  // Set scores for the order of eviction by score; unknown keys are passed over. Returns the number
  // of keys that have one now. With lower tiers it is done in parts, as Table::Put.
  size_t SetScores(const IdView& keys, const float* scores);
  // Start or end the collection of evicted keys.
  void Collect(bool on);
  // Return what was collected since the last call.
  std::vector<EvictedKey> Take();

 private:
  TableEngine& engine_;
  TableParts& core_;
};

}  // namespace msrec
