// SPDX-License-Identifier: Apache-2.0
//
// Table: who gets a row, who loses it, and what is known about it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "policy/check.h"
#include "table/for_shards.h"
#include "table/table_guard.h"
#include "util/headroom.h"

namespace msrec {
namespace {

constexpr int64_t kMaxTime = std::numeric_limits<uint32_t>::max();
constexpr int64_t kIndexBytes = 8;  // of the index, a row

// Rows over the capacity that one step drops, beside twice those it has inserted: about a
// millisecond's work. A capacity that was lowered is reached over several steps.
constexpr uint64_t kDropsAStep = 16384;

}  // namespace

// ---------------------------------------------------------------- settings

void Table::SetTrainable(bool trainable) {
  Guard::Run(this, [&] { core_.trainable = trainable; });
}

void Table::SetAdmissionThreshold(int64_t threshold) {
  Guard::Run(this, [&] {
    Admission admission = core_.context.admission;
    if (!admission.counts()) {
      throw std::invalid_argument(core_.Where("admits by probability and has no threshold to set"));
    }
    admission.threshold = threshold;
    CheckAdmission(admission, core_.Where(""));
    core_.context.admission = admission;
  });
}

void Table::SetEviction(const Eviction& eviction) {
  Guard::Run(this, [&] {
    CheckEviction(eviction, core_.Where(""));
    if (eviction.by_norm() && core_.device != nullptr && !core_.device->shared()) {
      core_.RefuseUnshared("eviction by norm");
    }
    if (eviction.scored() != core_.context.eviction.scored() ||
        (eviction.scored() && eviction.order != core_.context.eviction.order)) {
      throw std::invalid_argument(core_.Where(
          "order cannot change to or from lfu_decay or score: rows are made with room for "
          "their frequency or score, or without"));
    }
    SweepDue();
    core_.context.eviction = eviction;
    std::fill(std::begin(sweeping_), std::end(sweeping_), false);
    over_capacity_ = false;
    // With a trigger, nothing is due before it.
    core_.context.horizon = {};
    core_.context.epochs.seen = {core_.context.step, core_.context.time};
    FollowClock();
  });
}

size_t Table::SetScores(const IdView& keys, const float* scores) {
  return Guard::Run(this, [&] {
    if (core_.context.eviction.order != EvictionOrder::kScore) {
      throw std::invalid_argument(core_.Where("keeps no scores; make it with order='score'"));
    }
    size_t known = 0;
    for (size_t i = 0; i < keys.size; ++i) {
      if (std::isnan(scores[i])) {
        throw std::invalid_argument(
            core_.Where("scores must not be NaN, got one at position " + std::to_string(i)));
      }
    }
    ForEachBlock(keys, "scores", "set", [&](const IdView& some, size_t first) {
      const CallPins pins(this);
      if (core_.context.tiered) {
        auto batch = core_.lookups.NewBatch(some, {});
        BringUp(batch.get(), Purpose::kChange);
        core_.lookups.Recycle(std::move(batch));
      }
      for (size_t i = 0; i < some.size; ++i) {
        Shard& shard = core_.ShardFor(some[i]);
        char* row = shard.Find(some[i]);
        if (row == nullptr) continue;
        Value(row)[core_.context.score_at()] = scores[first + i];
        shard.Touch(row);
        ++known;
      }
    });
    return known;
  });
}

// ---------------------------------------------------------------- the clock

void Table::FollowClock() {
  const Horizon now{core_.context.step, core_.context.time};
  if (!core_.context.eviction.on_trigger) core_.context.horizon = now;
  core_.context.epochs.Follow(core_.context.eviction, now);
}

void Table::SetEventTime(int64_t seconds) {
  Guard::Run(this, [&] {
    if (seconds < 1 || seconds > kMaxTime) {
      throw std::invalid_argument(
          core_.Where("event time must be in [1, 2^32) whole seconds since 1970, got " +
                      std::to_string(seconds)));
    }
    if (seconds <= core_.context.time) return;
    const bool first = core_.context.time == 0;
    core_.context.time = static_cast<uint32_t>(seconds);
    // Rows from before there was a time are as old as the first time.
    if (first) {
      core_.context.first_time = core_.context.time;
      ForAllShards([&](int s) { core_.shards[s]->StampTime(); });
      core_.context.epochs.seen.time = seconds;
    }
    FollowClock();
  });
}

void Table::SetClock(int64_t step, uint32_t time) {
  Guard::Run(this, [&] {
    if (step < 0 || step > std::numeric_limits<uint32_t>::max()) {
      throw std::invalid_argument(
          core_.Where("step must be in [0, 2^32), got " + std::to_string(step)));
    }
    // What is due now must not come back; forward, it stays due.
    if (step < core_.context.step || time < core_.context.time) SweepDue();
    core_.context.step = step;
    core_.context.time = time;
    Horizon& horizon = core_.context.horizon;
    horizon = {std::min<int64_t>(horizon.step, step), std::min<int64_t>(horizon.time, time)};
    FollowClock();
  });
}

Horizon Table::horizon() {
  return Guard::Run(this, [&] { return core_.context.horizon; });
}

void Table::SetHorizon(const Horizon& horizon) {
  Guard::Run(this, [&] {
    if (horizon.step < 0 || horizon.step > core_.context.step || horizon.time < 0 ||
        horizon.time > core_.context.time) {
      throw std::invalid_argument(core_.Where("horizon must not be ahead of the clock"));
    }
    const Horizon& now = core_.context.horizon;
    if (horizon.step < now.step || horizon.time < now.time) SweepDue();
    if (core_.context.eviction.on_trigger) core_.context.horizon = horizon;
  });
}

int64_t Table::step() {
  return Guard::Run(this, [&] { return core_.context.step; });
}

uint32_t Table::time() {
  return Guard::Run(this, [&] { return core_.context.time; });
}

uint32_t Table::first_time() {
  return Guard::Run(this, [&] { return core_.context.first_time; });
}

// ---------------------------------------------------------------- eviction

void Table::SweepDue() {
  if (!core_.context.eviction.by_age()) return;
  ForAllShards([&](int s) { core_.shards[s]->EvictSlice(core_.shards[s]->places(), false); });
  SweepAllBelow(false);
}

void Table::EvictAll() {
  Guard::Run(this, [&] { SweepDue(); });
}

void Table::EvictSome() {
  const Eviction& eviction = core_.context.eviction;
  if (core_.context.is_static()) return;
  uint64_t inserted = 0;
  for (const auto& shard : core_.shards) inserted += shard->stats().inserted;
  const uint64_t fresh = inserted - inserted_before_;
  inserted_before_ = inserted;
  if (core_.device != nullptr && eviction.sweeps() && eviction.by_norm())
    core_.device->WriteBackAll();
  if (eviction.sweeps()) {
    ForAllShards([&](int s) {
      if (eviction.on_trigger && !sweeping_[s]) return;
      sweeping_[s] =
          !core_.shards[s]->EvictSlice(SliceRows(core_.shards[s]->places()), eviction.by_norm());
    });
    if (below_ != nullptr) SweepSomeBelow();
  }
  if (!eviction.on_trigger || over_capacity_) EvictOverCapacity(2 * fresh + kDropsAStep);
}

void Table::Evict(bool at_once) {
  Guard::Run(this, [&] {
    if (core_.context.is_static()) {
      throw std::invalid_argument(core_.Where("is static: no row ever leaves it"));
    }
    const Eviction& eviction = core_.context.eviction;
    if (eviction.max_idle_seconds >= 0 && core_.context.time == 0) core_.RefuseWithoutTime();
    if (core_.device != nullptr && eviction.by_norm()) core_.device->WriteBackAll();
    // What is due at the old horizon stays due at the new one: time only goes forward.
    core_.context.horizon = {core_.context.step, core_.context.time};
    over_capacity_ = true;
    ForAllShards([&](int s) {
      core_.shards[s]->RestartSweep();
      sweeping_[s] = eviction.sweeps();
      if (!at_once || !sweeping_[s]) return;
      core_.shards[s]->EvictSlice(core_.shards[s]->places(), eviction.by_norm());
      sweeping_[s] = false;
    });
    if (below_ != nullptr && eviction.sweeps()) {
      below_->sweep.reset();
      below_->sweeping = true;
      if (at_once) {
        SweepAllBelow(eviction.by_norm());
        below_->sweeping = false;
      }
    }
    if (at_once) EvictOverCapacity(std::numeric_limits<uint64_t>::max());
  });
}

int64_t Table::Capacity() const {
  const Eviction& eviction = core_.context.eviction;
  int64_t rows = eviction.max_rows;
  if (eviction.max_bytes >= 0) {
    const int64_t row_bytes = static_cast<int64_t>(core_.context.layout.stride()) + kIndexBytes;
    const int64_t fit = eviction.max_bytes / row_bytes;
    rows = rows < 0 ? fit : std::min(rows, fit);
  }
  return rows;
}

// Each shard offers in proportion to its rows: where there are few rows, all of them are offered.
std::vector<Offer> Table::Offers(
    uint64_t wanted, const std::function<void(Shard*, size_t, std::vector<Offer>*)>& offer) {
  const auto rows = static_cast<double>(core_.Rows());
  std::vector<Offer> offers[kNumShards];
  ForAllShards([&](int s) {
    const auto share = static_cast<double>(wanted) * static_cast<double>(core_.shards[s]->size());
    offer(core_.shards[s].get(), static_cast<size_t>(share / std::max(rows, 1.0)) + 1, &offers[s]);
  });
  std::vector<Offer> all;
  for (const auto& each : offers) all.insert(all.end(), each.begin(), each.end());
  return all;
}

void Table::KeepFirst(uint64_t most, std::vector<Offer>* offers) {
  const size_t kept = std::min<size_t>(most, offers->size());
  if (kept > 0) std::nth_element(offers->begin(), offers->begin() + (kept - 1), offers->end());
  offers->resize(kept);
}

void Table::EvictOverCapacity(uint64_t most) {
  const int64_t capacity = Capacity();
  const uint64_t all_rows = AllRows();
  over_capacity_ = capacity >= 0 && all_rows > static_cast<uint64_t>(capacity);
  if (!over_capacity_) return;
  const uint64_t over = all_rows - static_cast<uint64_t>(capacity);
  uint64_t drops = std::min(over, most);
  if (below_ != nullptr) {
    const uint64_t dropped = CrowdBelow(drops);
    over_capacity_ = dropped < over;
    if (dropped == drops) return;
    drops -= dropped;
  }
  std::vector<Offer> going = Offers(drops, [](Shard* shard, size_t n, std::vector<Offer>* offers) {
    shard->OfferFirst(n, offers);
  });
  KeepFirst(drops, &going);
  std::vector<Offer> offers[kNumShards];
  for (const Offer& offer : going) offers[offer.shard].push_back(offer);
  ForAllShards([&](int s) {
    for (const Offer& offer : offers[s]) core_.shards[s]->Crowd(offer.place);
  });
  over_capacity_ = AllRows() > static_cast<uint64_t>(capacity);
}

void Table::CollectEvicted(bool on) {
  Guard::Run(this, [&] {
    for (const auto& shard : core_.shards) shard->evictions().Collect(on);
  });
}

std::vector<EvictedKey> Table::TakeEvicted() {
  return Guard::Run(this, [&] {
    size_t collected = 0;
    for (const auto& shard : core_.shards) collected += shard->evictions().collected();
    std::vector<EvictedKey> keys;
    keys.reserve(collected);
    for (const auto& shard : core_.shards) shard->evictions().Take(&keys);
    return keys;
  });
}

// ---------------------------------------------------------------- what is known

Explanation Table::Explain(int64_t key) {
  return Guard::Run(this, [&] {
    core_.CheckKeys(IdView{&key, 1, true}, "keys");
    Shard& shard = core_.ShardFor(key);
    Explanation out;
    out.trained = core_.trainable;
    out.admission = core_.context.admission;
    out.eviction = core_.context.eviction;
    out.step = core_.context.step;
    out.time = core_.context.time;
    if (const EvictedKey* evicted = shard.evictions().Find(key)) out.evicted = *evicted;
    std::vector<char> visitors;
    const char* row = RowsOf(IdView{&key, 1, true}, &visitors)[0].second;
    if (row == nullptr) {
      shard.EvictDue(key);
      if (below_ != nullptr && below_->rows > 0) {
        DropBelow({key}, [&](const char* below) { return shard.Reason(below, false); });
      }
      if (const EvictedKey* evicted = shard.evictions().Find(key)) out.evicted = *evicted;
      out.count = shard.CandidateCount(key);
      return out;
    }
    out.present = true;
    out.count = Meta(row)->count;
    out.last_step = Meta(row)->last_step;
    out.last_time = Meta(row)->last_time;
    double squares = 0.0;
    for (int j = 0; j < core_.config.dim; ++j) {
      squares += static_cast<double>(Value(row)[j]) * Value(row)[j];
    }
    out.norm = std::sqrt(squares);
    if (core_.context.eviction.scored()) out.standing = Value(row)[core_.context.score_at()];
    return out;
  });
}

}  // namespace msrec
