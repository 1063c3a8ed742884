// SPDX-License-Identifier: Apache-2.0
#include "table/table_clock.h"

#include "table/table_guard.h"

namespace msrec {

void TableClock::SetEventTime(int64_t seconds) {
  TableGuard::Run(&core_, [&] { engine_.evictor.SetEventTime(seconds); });
}

void TableClock::Set(int64_t step, uint32_t time) {
  TableGuard::Run(&core_, [&] { engine_.evictor.SetClock(step, time); });
}

Horizon TableClock::horizon() {
  return TableGuard::Run(&core_, [&] { return core_.context.horizon; });
}

void TableClock::SetHorizon(const Horizon& horizon) {
  TableGuard::Run(&core_, [&] { engine_.evictor.SetHorizon(horizon); });
}

int64_t TableClock::step() {
  return TableGuard::Run(&core_, [&] { return core_.context.step; });
}

uint32_t TableClock::time() {
  return TableGuard::Run(&core_, [&] { return core_.context.time; });
}

uint32_t TableClock::first_time() {
  return TableGuard::Run(&core_, [&] { return core_.context.first_time; });
}

}  // namespace msrec
