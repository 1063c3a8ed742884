// SPDX-License-Identifier: Apache-2.0
//
// Evictor: decides when rows of a table are evicted: by age at the horizon, by norm, and over the
// capacity. Rows that are due are invisible at once; their memory is freed by a sweep, a slice a
// step. Keeps the table's clock and the horizon that ages are measured at. A part of a table, under
// its mutex.
#pragma once

#include <cstdint>

#include "policy/eviction.h"
#include "table/row_reader.h"
#include "table/table_parts.h"

namespace msrec {

class Evictor {
 public:
  // Requires: both outlive it.
  Evictor(TableParts* core, RowReader* rows) : core_(*core), rows_(*rows) {}

  // Set how rows are evicted. Rows due under the settings before are evicted first.
  void Set(const Eviction& eviction);

  // ---- the clock

  // End a step: move the clock, and evict one step's share. A tier or memory that fails leaves that
  // to a later step.
  void FinishStep();
  // Set the time of the batch to come; older than the watermark: no effect.
  void SetEventTime(int64_t seconds);
  // Put the clock to a moment, the past included.
  void SetClock(int64_t step, uint32_t time);
  void SetHorizon(const Horizon& horizon);

  // ---- eviction

  // Free what is due, so that it is not among the rows.
  void EvictDue();
  // Move the horizon to the clock and apply all rules: at once, or in the steps to come.
  void Trigger(bool at_once);

 private:
  // Let horizon and epochs follow the clock.
  void FollowClock();
  // One step's share of evicting.
  void EvictSlice();
  // Most rows of the table; -1: no limit.
  int64_t Capacity() const;
  // Evict rows over the capacity, at most `most`.
  void EvictOverCapacity(uint64_t most);
  // The same in host memory.
  void EvictFromHost(uint64_t rows);

  TableParts& core_;
  RowReader& rows_;
  bool sweeping_[kNumShards] = {};  // with Eviction::on_trigger: not all places have been looked at
  bool over_capacity_ = false;      // with the same: rows are still to go
  uint64_t inserted_before_ = 0;    // rows ever inserted, up to the last step
};

}  // namespace msrec
