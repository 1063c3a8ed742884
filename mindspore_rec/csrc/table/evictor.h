// SPDX-License-Identifier: Apache-2.0
//
// Evictor: decides which rows of a table are evicted, and when. A row is evicted because the row is
// too old, because the row's norm is too small, or because the table exceeds its capacity. As soon
// as a row is due for eviction, lookups ignore the row. A sweep frees the memory of rows due for
// eviction, one slice per step. The evictor keeps the table's clock and the horizon, which is the
// time at which ages are measured. Evictor is a part of a table; the caller must hold the table's
// mutex.
#pragma once

#include <cstdint>

#include "policy/eviction.h"
#include "table/row_reader.h"
#include "table/table_parts.h"

namespace msrec {

class Evictor {
 public:
  // Requires: core and rows outlive this object.
  Evictor(TableParts* core, RowReader* rows) : core_(*core), rows_(*rows) {}

  // Set the eviction rules. Rows that are due for eviction under the old settings are evicted
  // first.
  void Set(const Eviction& eviction);

  // ---- the clock

  // End a step: advance the clock, evict the due rows in one slice of the table, and evict rows
  // over the capacity. If a tier fails or memory is short, a later step does the eviction.
  void FinishStep();
  // Set the event time of the next batch. A time older than the watermark has no effect.
  void SetEventTime(int64_t seconds);
  // Set the clock to any moment, which may be in the past.
  void SetClock(int64_t step, uint32_t time);
  void SetHorizon(const Horizon& horizon);

  // ---- eviction

  // Free all rows that are due for eviction.
  void EvictDue();
  // Move the horizon to the clock's time, and apply all rules, either at once or in the following
  // steps.
  void Trigger(bool at_once);

 private:
  // Set the horizon to the clock's time, and update the epochs. If Eviction::on_trigger is set, do
  // not change the horizon.
  void FollowClock();
  // In one slice of the table, evict the rows that are due for eviction. Also evict rows over the
  // capacity.
  void EvictSlice();
  // Maximum number of rows of the table; -1: no limit.
  int64_t Capacity() const;
  // Evict rows over the capacity, but not more than `most` rows.
  void EvictOverCapacity(uint64_t most);
  // Evict `rows` rows from host memory, because the table is over its capacity.
  void EvictFromHost(uint64_t rows);

  TableParts& core_;
  RowReader& rows_;
  bool sweeping_[kNumShards] = {};  // with Eviction::on_trigger: not all places have been looked at
  bool over_capacity_ = false;      // with the same: rows are still to go
  uint64_t inserted_before_ = 0;    // rows ever inserted, up to the last step
};

}  // namespace msrec
