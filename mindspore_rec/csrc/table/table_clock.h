// SPDX-License-Identifier: Apache-2.0
//
// TableClock: the methods for a table's clock. The clock counts the completed steps and stores the
// event time; the ages of rows are measured by the clock. Any thread may call the methods of
// TableClock; the methods lock the table's mutex and throw the same exceptions as Table.
#pragma once

#include <cstdint>

#include "policy/eviction.h"
#include "table/table_engine.h"

namespace msrec {

class TableClock {
 public:
  // Requires: engine outlives this object.
  explicit TableClock(TableEngine* engine) : engine_(*engine), core_(engine->core) {}

  // Set the event time of the next batch, in whole seconds, at least 1. A time older than the
  // watermark has no effect.
  void SetEventTime(int64_t seconds);
  // Set the clock to any moment, which may be in the past. If Eviction::on_trigger is set, the
  // horizon changes only if the new clock is earlier than the horizon; the horizon is then set to
  // the clock.
  void Set(int64_t step, uint32_t time);
  Horizon horizon();
  // Set the horizon to the moment of the last trigger. The horizon must not be later than the
  // clock. If Eviction::on_trigger is not set, the horizon is always the clock's time, and
  // SetHorizon does not change the horizon.
  void SetHorizon(const Horizon& horizon);
  int64_t step();
  uint32_t time();
  // Return the first event time of the table, or 0 if the table never had an event time. If a row
  // is older than the first event time, the row's time is set to the first event time.
  uint32_t first_time();

 private:
  TableEngine& engine_;
  TableParts& core_;
};

}  // namespace msrec
