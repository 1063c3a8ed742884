// SPDX-License-Identifier: Apache-2.0
//
// TableEviction: the methods that control the eviction of rows. Any thread may call the methods of
// TableEviction; the methods lock the table's mutex and throw the same exceptions as Table.
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
  // Requires: engine outlives this object.
  explicit TableEviction(TableEngine* engine) : engine_(*engine), core_(engine->core) {}

  // Set the eviction rules; rows that are due for eviction under the old settings are evicted
  // first. Throws std::invalid_argument if the order of eviction changes to or from kLfuDecay or
  // kScore.
  void Set(const Eviction& eviction);
  // Move the horizon to the clock's time, and apply all rules to the whole table at once, or to one
  // slice in each of the following steps. If a tier fails or memory runs out, the eviction is still
  // triggered, and the following steps complete the eviction.
  void Evict(bool at_once);
  // Free the rows that are already due for eviction.
  void EvictAll();
  // Set the scores that decide which rows are evicted first; unknown keys are skipped. Returns the
  // number of keys whose score was set. If the table has lower tiers, large calls are split into
  // parts, as in Table::Put.
  size_t SetScores(const IdView& keys, const float* scores);
  // Start or end the collection of evicted keys.
  void Collect(bool on);
  // Return the keys collected since the last call.
  std::vector<EvictedKey> Take();

 private:
  TableEngine& engine_;
  TableParts& core_;
};

}  // namespace msrec
