// SPDX-License-Identifier: Apache-2.0
#include "table/evictor.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "policy/check.h"
#include "readers/quantised_rows.h"
#include "rows/for_shards.h"
#include "table/cache/row_cache.h"
#include "table/core/row_sizes.h"
#include "table/core/victims.h"

namespace msrec {
namespace {

constexpr int64_t kMaxTime = std::numeric_limits<uint32_t>::max();

// If the table exceeds its capacity, the maximum number of rows that a step evicts is kVictimsAStep
// plus twice the number of rows that the step inserted. The eviction of 16,384 rows takes about a
// millisecond. After the capacity is lowered, several steps may be needed to evict all rows over
// the capacity.
constexpr uint64_t kVictimsAStep = 16384;

}  // namespace

void Evictor::Set(const Eviction& eviction) {
  ShardContext& context = core_.context;
  CheckEviction(eviction, core_.Where(""));
  if (eviction.by_norm() && core_.device != nullptr && !core_.device->shared()) {
    core_.RefuseUnshared("eviction by norm");
  }
  if (eviction.scored() != context.eviction.scored() ||
      (eviction.scored() && eviction.order != context.eviction.order)) {
    throw std::invalid_argument(core_.Where(
        "order cannot change to or from lfu_decay or score: rows are made with room for "
        "their frequency or score, or without"));
  }
  if (core_.quantised != nullptr && !context.is_static() &&
      eviction.by_age() != core_.quantised->layout().aged) {
    throw std::invalid_argument(core_.Where(
        "age limits cannot be set or lifted: rows of int8 and int4 are made with room for their "
        "age, or without"));
  }
  EvictDue();
  context.eviction = eviction;
  std::fill(std::begin(sweeping_), std::end(sweeping_), false);
  over_capacity_ = false;
  // If `on_trigger` is set, no row is due for eviction until the first trigger.
  context.horizon = {};
  context.epochs.seen = {context.step, context.time};
  FollowClock();
}

// ---------------------------------------------------------------- the clock

void Evictor::FollowClock() {
  ShardContext& context = core_.context;
  const Horizon now{context.step, context.time};
  if (!context.eviction.on_trigger) context.horizon = now;
  context.epochs.Follow(context.eviction, now);
}

void Evictor::FinishStep() {
  ++core_.context.step;
  FollowClock();
  try {
    EvictSlice();
  } catch (const std::exception&) {
    // The rows are already updated, so an exception would make the caller repeat the update. A row
    // is either evicted or unchanged. Lookups already ignore the rows that are due for eviction. In
    // the next step, the number of rows over the capacity is computed again.
    if (core_.cache != nullptr) core_.cache->eviction.NoteFailure();
  }
}

void Evictor::SetEventTime(int64_t seconds) {
  ShardContext& context = core_.context;
  if (seconds < 1 || seconds > kMaxTime) {
    throw std::invalid_argument(
        core_.Where("event time must be in [1, 2^32) whole seconds since 1970, got " +
                    std::to_string(seconds)));
  }
  if (seconds <= context.time) return;
  const bool first = context.time == 0;
  context.time = static_cast<uint32_t>(seconds);
  // If a row is older than the first event time, the row's time is set to the first event time.
  if (first) {
    // If first_time is set although the clock has no time, the clock has been reset. After a reset
    // of the clock, rows with the old first_time do not match the stored digest.
    if (context.first_time != 0) core_.DropDigest();
    context.first_time = context.time;
    ForAllShards([&](int s) { core_.shards[s]->StampTime(); });
    if (core_.quantised != nullptr) core_.quantised->StampTime(context.time);
    context.epochs.seen.time = seconds;
  }
  FollowClock();
}

void Evictor::SetClock(int64_t step, uint32_t time) {
  ShardContext& context = core_.context;
  if (step < 0 || step > std::numeric_limits<uint32_t>::max()) {
    throw std::invalid_argument(
        core_.Where("step must be in [0, 2^32), got " + std::to_string(step)));
  }
  // Before the clock is set back, evict the rows that are due for eviction, because an earlier
  // clock would make these rows visible again. If the clock moves forward, rows that are due for
  // eviction stay due.
  if (step < context.step || time < context.time) EvictDue();
  context.step = step;
  context.time = time;
  Horizon& horizon = context.horizon;
  horizon = {std::min<int64_t>(horizon.step, step), std::min<int64_t>(horizon.time, time)};
  FollowClock();
}

void Evictor::SetHorizon(const Horizon& horizon) {
  ShardContext& context = core_.context;
  if (horizon.step < 0 || horizon.step > context.step || horizon.time < 0 ||
      horizon.time > context.time) {
    throw std::invalid_argument(core_.Where("horizon must not be ahead of the clock"));
  }
  const Horizon& now = context.horizon;
  if (horizon.step < now.step || horizon.time < now.time) EvictDue();
  if (context.eviction.on_trigger) context.horizon = horizon;
}

// ---------------------------------------------------------------- eviction

void Evictor::EvictDue() {
  if (!core_.context.eviction.by_age()) return;
  if (core_.quantised != nullptr) {
    core_.quantised->EraseOld({core_.context.eviction, core_.context.horizon});
    return;
  }
  ForAllShards([&](int s) { core_.shards[s]->EvictSlice(core_.shards[s]->places(), false); });
  if (core_.cache != nullptr) core_.cache->eviction.EvictAll(false);
}

void Evictor::EvictSlice() {
  const Eviction& eviction = core_.context.eviction;
  if (core_.context.is_static()) return;
  uint64_t inserted = 0;
  for (const auto& shard : core_.shards) inserted += shard->stats().inserted;
  const uint64_t fresh = inserted - inserted_before_;
  inserted_before_ = inserted;
  if (core_.device != nullptr && eviction.by_norm()) core_.device->WriteBackAll();
  if (eviction.sweeps()) {
    ForAllShards([&](int s) {
      Shard& shard = *core_.shards[s];
      if (eviction.on_trigger && !sweeping_[s]) return;
      sweeping_[s] = !shard.EvictSlice(SliceRows(shard.places()), eviction.by_norm());
    });
    if (core_.cache != nullptr) core_.cache->eviction.EvictSlice();
  }
  if (!eviction.on_trigger || over_capacity_) EvictOverCapacity(2 * fresh + kVictimsAStep);
}

void Evictor::Trigger(bool at_once) {
  const Eviction& eviction = core_.context.eviction;
  if (core_.context.is_static()) {
    throw std::invalid_argument(core_.Where("is static: no row ever leaves it"));
  }
  if (eviction.max_idle_seconds >= 0 && core_.context.time == 0) core_.RefuseWithoutTime();
  if (core_.device != nullptr && eviction.by_norm()) core_.device->WriteBackAll();
  // Rows that are due for eviction at the old horizon stay due at the new horizon, because time
  // only moves forward.
  core_.context.horizon = {core_.context.step, core_.context.time};
  over_capacity_ = true;
  ForAllShards([&](int s) {
    Shard& shard = *core_.shards[s];
    shard.RestartSweep();
    sweeping_[s] = eviction.sweeps();
    if (!at_once || !sweeping_[s]) return;
    shard.EvictSlice(shard.places(), eviction.by_norm());
    sweeping_[s] = false;
  });
  if (core_.cache != nullptr && eviction.sweeps()) {
    core_.cache->eviction.Trigger();
    if (at_once) core_.cache->eviction.EvictTriggered(eviction.by_norm());
  }
  if (at_once) EvictOverCapacity(std::numeric_limits<uint64_t>::max());
}

// ---------------------------------------------------------------- capacity

int64_t Evictor::Capacity() const {
  const Eviction& eviction = core_.context.eviction;
  const Placement& placement = core_.context.placement;
  int64_t rows = placement.Share(eviction.max_rows);
  if (eviction.max_bytes >= 0) {
    // The capacity limits the rows of all tiers, so the overhead of a row in host memory is not
    // counted.
    const auto row_bytes = static_cast<int64_t>(RowSizes(core_.context.layout).in_host(false));
    const int64_t fit = placement.Share(eviction.max_bytes) / row_bytes;
    rows = rows < 0 ? fit : std::min(rows, fit);
  }
  return rows;
}

void Evictor::EvictOverCapacity(uint64_t most) {
  const int64_t capacity = Capacity();
  const uint64_t all_rows = rows_.Count();
  over_capacity_ = capacity >= 0 && all_rows > static_cast<uint64_t>(capacity);
  if (!over_capacity_) return;
  const uint64_t over = all_rows - static_cast<uint64_t>(capacity);
  uint64_t victims = std::min(over, most);
  if (core_.cache != nullptr) {
    const uint64_t evicted = core_.cache->eviction.EvictOverCapacity(victims);
    over_capacity_ = evicted < over;
    if (evicted == victims) return;
    victims -= evicted;
  }
  EvictFromHost(victims);
  over_capacity_ = rows_.Count() > static_cast<uint64_t>(capacity);
}

void Evictor::EvictFromHost(uint64_t rows) {
  VictimCandidates victims =
      SampleCandidates(core_, rows, [](Shard* shard, size_t n, VictimCandidates* candidates) {
        shard->EvictionCandidates(n, candidates);
      });
  SelectVictims(rows, &victims);
  std::vector<uint32_t> places[kNumShards];
  for (const VictimCandidate& victim : victims) places[victim.shard].push_back(victim.place);
  ForAllShards([&](int s) {
    for (const uint32_t place : places[s]) core_.shards[s]->EvictOverCapacity(place);
  });
}

}  // namespace msrec
