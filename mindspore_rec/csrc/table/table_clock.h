// SPDX-License-Identifier: Apache-2.0
//
// TableClock: the calls on the clock that the ages of a table's rows are measured by: completed
// steps, and event time. As Table: from any thread, under the table's mutex, with its exceptions.
#pragma once

#include <cstdint>

#include "policy/eviction.h"
#include "table/table_engine.h"

namespace msrec {

class TableClock {
 public:
  // Requires: engine outlives it.
  explicit TableClock(TableEngine* engine) : engine_(*engine), core_(engine->core) {}

  // Set the event time of the batch to come, whole seconds >= 1. Older than the watermark: no
  // effect.
  void SetEventTime(int64_t seconds);
  // Put the clock to a moment, the past included. With Eviction::on_trigger the horizon stays
  // where it is, unless it would be ahead of the clock.
  void Set(int64_t step, uint32_t time);
  Horizon horizon();
  // Put the horizon to where the last trigger left it; not ahead of the clock.
  void SetHorizon(const Horizon& horizon);
  int64_t step();
  uint32_t time();
  // Return the first event time there was, which rows from before it have; 0: there was none.
  uint32_t first_time();

 private:
  TableEngine& engine_;
  TableParts& core_;
};

}  // namespace msrec
