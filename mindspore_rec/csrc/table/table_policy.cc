// SPDX-License-Identifier: Apache-2.0
//
// Table: who gets a row, who loses it, and what is known about it.
#include <algorithm>
#include <cmath>
#include <limits>

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

void Table::CheckAdmission(const Admission& admission) const {
  const bool sketch = admission.kind == AdmissionKind::kSketch;
  const int bits = admission.sketch_bits;
  if (sketch && bits != 4 && bits != 8 && bits != 16) {
    throw std::invalid_argument(
        Where("sketch_bits must be 4, 8 or 16, got " + std::to_string(bits)));
  }
  const int64_t highest = sketch ? CountingSketch::MaxCount(bits) : int64_t{kMaxCount};
  if (admission.threshold < -1 || admission.threshold > highest) {
    throw std::invalid_argument(Where("admission threshold must be in [-1, " +
                                      std::to_string(highest) + "], got " +
                                      std::to_string(admission.threshold)));
  }
  if (admission.max_candidates != -1 && admission.max_candidates < kNumShards) {
    throw std::invalid_argument(Where("max_candidates must be -1 or >= 16, got " +
                                      std::to_string(admission.max_candidates)));
  }
  if (sketch && admission.sketch_bytes < 1024) {
    throw std::invalid_argument(
        Where("sketch_bytes must be >= 1024, got " + std::to_string(admission.sketch_bytes)));
  }
  if (!(admission.probability > 0.0 && admission.probability <= 1.0)) {
    throw std::invalid_argument(
        Where("probability must be in (0, 1], got " + std::to_string(admission.probability)));
  }
}

void Table::CheckEviction(const Eviction& eviction) const {
  const auto check = [&](const char* argument, int64_t value, int64_t least) {
    if (value == -1 || (value >= least && value <= std::numeric_limits<int64_t>::max() / 4)) return;
    throw std::invalid_argument(Where(std::string(argument) + " must be -1 or >= " +
                                      std::to_string(least) + ", got " + std::to_string(value)));
  };
  check("max_idle_steps", eviction.max_idle_steps, 1);
  check("max_idle_seconds", eviction.max_idle_seconds, 1);
  check("max_rows", eviction.max_rows, 1);
  check("max_bytes", eviction.max_bytes, 1);
  const bool decays = eviction.order == EvictionOrder::kLfuDecay;
  if (decays && !(std::isfinite(eviction.half_life_steps) && eviction.half_life_steps > 0.0)) {
    throw std::invalid_argument(Where("half_life_steps must be a finite number > 0, got " +
                                      std::to_string(eviction.half_life_steps)));
  }
  if (!std::isfinite(eviction.min_norm)) {
    throw std::invalid_argument(Where("min_norm must be finite"));
  }
}

std::vector<float> Table::UnknownRow(const std::vector<float>& given, const char* argument,
                                     const std::vector<float>& otherwise) const {
  const std::vector<float>& row = given.empty() ? otherwise : given;
  if (row.size() == 1) return std::vector<float>(config_.dim, row[0]);
  if (row.size() == static_cast<size_t>(config_.dim)) return row;
  throw std::invalid_argument(Where(std::string(argument) + " must have 1 or " +
                                    std::to_string(config_.dim) + " floats, got " +
                                    std::to_string(row.size())));
}

void Table::SetTrainable(bool trainable) {
  Guard::Run(this, [&] { trainable_ = trainable; });
}

void Table::SetAdmissionThreshold(int64_t threshold) {
  Guard::Run(this, [&] {
    Admission admission = context_.admission;
    if (!admission.counts()) {
      throw std::invalid_argument(Where("admits by probability and has no threshold to set"));
    }
    admission.threshold = threshold;
    CheckAdmission(admission);
    context_.admission = admission;
  });
}

void Table::SetEviction(const Eviction& eviction) {
  Guard::Run(this, [&] {
    CheckEviction(eviction);
    if (eviction.by_norm() && device_ != nullptr && !device_->shared()) {
      RefuseUnshared("eviction by norm");
    }
    if (eviction.scored() != context_.eviction.scored() ||
        (eviction.scored() && eviction.order != context_.eviction.order)) {
      throw std::invalid_argument(
          Where("order cannot change to or from lfu_decay or score: rows are made with room for "
                "their frequency or score, or without"));
    }
    SweepDue();
    context_.eviction = eviction;
    std::fill(std::begin(sweeping_), std::end(sweeping_), false);
    over_capacity_ = false;
    // With a trigger, nothing is due before it.
    context_.horizon = {};
    context_.epochs.seen = {context_.step, context_.time};
    FollowClock();
  });
}

size_t Table::SetScores(const IdView& keys, const float* scores) {
  return Guard::Run(this, [&] {
    if (context_.eviction.order != EvictionOrder::kScore) {
      throw std::invalid_argument(Where("keeps no scores; make it with order='score'"));
    }
    size_t known = 0;
    for (size_t i = 0; i < keys.size; ++i) {
      if (std::isnan(scores[i])) {
        throw std::invalid_argument(
            Where("scores must not be NaN, got one at position " + std::to_string(i)));
      }
    }
    ForEachBlock(keys, "scores", "set", [&](const IdView& some, size_t first) {
      const CallPins pins(this);
      if (context_.tiered) {
        auto batch = NewBatch(some, {});
        BringUp(batch.get(), Purpose::kChange);
        Recycle(std::move(batch));
      }
      for (size_t i = 0; i < some.size; ++i) {
        Shard& shard = ShardFor(some[i]);
        char* row = shard.Find(some[i]);
        if (row == nullptr) continue;
        Value(row)[context_.score_at()] = scores[first + i];
        shard.Touch(row);
        ++known;
      }
    });
    return known;
  });
}

// ---------------------------------------------------------------- the clock

void Table::FollowClock() {
  const Horizon now{context_.step, context_.time};
  if (!context_.eviction.on_trigger) context_.horizon = now;
  context_.epochs.Follow(context_.eviction, now);
}

void Table::SetEventTime(int64_t seconds) {
  Guard::Run(this, [&] {
    if (seconds < 1 || seconds > kMaxTime) {
      throw std::invalid_argument(
          Where("event time must be in [1, 2^32) whole seconds since 1970, got " +
                std::to_string(seconds)));
    }
    if (seconds <= context_.time) return;
    const bool first = context_.time == 0;
    context_.time = static_cast<uint32_t>(seconds);
    // Rows from before there was a time are as old as the first time.
    if (first) {
      context_.first_time = context_.time;
      ForAllShards([&](int s) { shards_[s]->StampTime(); });
      context_.epochs.seen.time = seconds;
    }
    FollowClock();
  });
}

void Table::SetClock(int64_t step, uint32_t time) {
  Guard::Run(this, [&] {
    if (step < 0 || step > std::numeric_limits<uint32_t>::max()) {
      throw std::invalid_argument(Where("step must be in [0, 2^32), got " + std::to_string(step)));
    }
    // What is due now must not come back; forward, it stays due.
    if (step < context_.step || time < context_.time) SweepDue();
    context_.step = step;
    context_.time = time;
    Horizon& horizon = context_.horizon;
    horizon = {std::min<int64_t>(horizon.step, step), std::min<int64_t>(horizon.time, time)};
    FollowClock();
  });
}

Horizon Table::horizon() {
  return Guard::Run(this, [&] { return context_.horizon; });
}

void Table::SetHorizon(const Horizon& horizon) {
  Guard::Run(this, [&] {
    if (horizon.step < 0 || horizon.step > context_.step || horizon.time < 0 ||
        horizon.time > context_.time) {
      throw std::invalid_argument(Where("horizon must not be ahead of the clock"));
    }
    const Horizon& now = context_.horizon;
    if (horizon.step < now.step || horizon.time < now.time) SweepDue();
    if (context_.eviction.on_trigger) context_.horizon = horizon;
  });
}

int64_t Table::step() {
  return Guard::Run(this, [&] { return context_.step; });
}

uint32_t Table::time() {
  return Guard::Run(this, [&] { return context_.time; });
}

uint32_t Table::first_time() {
  return Guard::Run(this, [&] { return context_.first_time; });
}

// ---------------------------------------------------------------- eviction

size_t Table::Rows() const {
  size_t total = 0;
  for (const auto& shard : shards_) total += shard->size();
  return total;
}

void Table::SweepDue() {
  if (!context_.eviction.by_age()) return;
  ForAllShards([&](int s) { shards_[s]->EvictSlice(shards_[s]->places(), false); });
  SweepAllBelow(false);
}

void Table::EvictAll() {
  Guard::Run(this, [&] { SweepDue(); });
}

void Table::EvictSome() {
  const Eviction& eviction = context_.eviction;
  if (context_.is_static()) return;
  uint64_t inserted = 0;
  for (const auto& shard : shards_) inserted += shard->stats().inserted;
  const uint64_t fresh = inserted - inserted_before_;
  inserted_before_ = inserted;
  if (device_ != nullptr && eviction.sweeps() && eviction.by_norm()) device_->FreshenAll();
  if (eviction.sweeps()) {
    ForAllShards([&](int s) {
      if (eviction.on_trigger && !sweeping_[s]) return;
      sweeping_[s] = !shards_[s]->EvictSlice(SliceRows(shards_[s]->places()), eviction.by_norm());
    });
    if (below_ != nullptr) SweepSomeBelow();
  }
  if (!eviction.on_trigger || over_capacity_) EvictOverCapacity(2 * fresh + kDropsAStep);
}

void Table::Evict(bool at_once) {
  Guard::Run(this, [&] {
    if (context_.is_static()) {
      throw std::invalid_argument(Where("is static: no row ever leaves it"));
    }
    const Eviction& eviction = context_.eviction;
    if (eviction.max_idle_seconds >= 0 && context_.time == 0) RefuseWithoutTime();
    if (device_ != nullptr && eviction.by_norm()) device_->FreshenAll();
    // What is due at the old horizon stays due at the new one: time only goes forward.
    context_.horizon = {context_.step, context_.time};
    over_capacity_ = true;
    ForAllShards([&](int s) {
      shards_[s]->RestartSweep();
      sweeping_[s] = eviction.sweeps();
      if (!at_once || !sweeping_[s]) return;
      shards_[s]->EvictSlice(shards_[s]->places(), eviction.by_norm());
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
  const Eviction& eviction = context_.eviction;
  int64_t rows = eviction.max_rows;
  if (eviction.max_bytes >= 0) {
    const int64_t row_bytes = static_cast<int64_t>(context_.layout.stride()) + kIndexBytes;
    const int64_t fit = eviction.max_bytes / row_bytes;
    rows = rows < 0 ? fit : std::min(rows, fit);
  }
  return rows;
}

// Each shard offers in proportion to its rows: where there are few rows, all of them are offered.
std::vector<Offer> Table::Offers(
    uint64_t wanted, const std::function<void(Shard*, size_t, std::vector<Offer>*)>& offer) {
  const auto rows = static_cast<double>(Rows());
  std::vector<Offer> offers[kNumShards];
  ForAllShards([&](int s) {
    const auto share = static_cast<double>(wanted) * static_cast<double>(shards_[s]->size());
    offer(shards_[s].get(), static_cast<size_t>(share / std::max(rows, 1.0)) + 1, &offers[s]);
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
    for (const Offer& offer : offers[s]) shards_[s]->Crowd(offer.place);
  });
  over_capacity_ = AllRows() > static_cast<uint64_t>(capacity);
}

void Table::CollectEvicted(bool on) {
  Guard::Run(this, [&] {
    for (const auto& shard : shards_) shard->evictions().Collect(on);
  });
}

std::vector<EvictedKey> Table::TakeEvicted() {
  return Guard::Run(this, [&] {
    size_t collected = 0;
    for (const auto& shard : shards_) collected += shard->evictions().collected();
    std::vector<EvictedKey> keys;
    keys.reserve(collected);
    for (const auto& shard : shards_) shard->evictions().Take(&keys);
    return keys;
  });
}

// ---------------------------------------------------------------- what is known

Explanation Table::Explain(int64_t key) {
  return Guard::Run(this, [&] {
    CheckKeys(IdView{&key, 1, true}, "keys");
    Shard& shard = ShardFor(key);
    Explanation out;
    out.trained = trainable_;
    out.admission = context_.admission;
    out.eviction = context_.eviction;
    out.step = context_.step;
    out.time = context_.time;
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
    for (int j = 0; j < config_.dim; ++j) {
      squares += static_cast<double>(Value(row)[j]) * Value(row)[j];
    }
    out.norm = std::sqrt(squares);
    if (context_.eviction.scored()) out.standing = Value(row)[context_.score_at()];
    return out;
  });
}

TableStats Table::Stats() {
  return Guard::Run(this, [&] {
    size_t rows = 0, candidates = 0, row_bytes = 0, index_bytes = 0, log_bytes = 0, slots = 0;
    size_t candidate_bytes = 0;
    ShardStats sum;
    for (const auto& shard : shards_) {
      rows += shard->size();
      candidates += shard->candidates().size();
      candidate_bytes += shard->candidates().bytes();
      row_bytes += shard->row_bytes();
      index_bytes += shard->index_bytes();
      log_bytes += shard->log_bytes() + shard->evictions().bytes();
      slots += shard->index_slots();
      const ShardStats& stats = shard->stats();
      sum.inserted += stats.inserted;
      sum.rejected += stats.rejected;
      sum.evicted_by_age += stats.evicted_by_age;
      sum.evicted_by_capacity += stats.evicted_by_capacity;
      sum.evicted_by_norm += stats.evicted_by_norm;
      sum.erased += stats.erased;
    }
    size_t buffer_bytes = gradients_.bytes();
    for (const auto& batch : spare_) buffer_bytes += batch->bytes();
    for (const auto& [ticket, batch] : outstanding_) buffer_bytes += batch->bytes();
    const auto number = [](auto value) { return static_cast<double>(value); };
    TableStats stats{
        {"rows", number(AllRows())},
        {"candidates", number(candidates)},
        {"row_bytes", number(row_bytes)},
        {"metadata_bytes", number(rows * sizeof(RowMeta))},
        {"index_bytes", number(index_bytes)},
        {"candidate_bytes", number(candidate_bytes)},
        {"change_log_bytes", number(log_bytes)},
        {"buffer_bytes", number(buffer_bytes)},
        {"load_factor", slots == 0 ? 0.0 : number(rows) / number(slots)},
        {"inserted", number(sum.inserted)},
        {"rejected", number(sum.rejected)},
        {"evicted", number(sum.removed() - sum.erased)},
        {"evicted_by_age", number(sum.evicted_by_age)},
        {"evicted_by_capacity", number(sum.evicted_by_capacity)},
        {"evicted_by_norm", number(sum.evicted_by_norm)},
        {"erased", number(sum.erased)},
        {"step", number(context_.step)},
        {"event_time", number(context_.time)},
        {"state_width", number(context_.layout.state_width)},
    };
    AddTierStats(&stats);
    if (device_ != nullptr) {
      stats.insert(stats.end(), {{"device_rows", number(device_->map().size())},
                                 {"device_capacity_rows", number(device_->slots())},
                                 {"device_hits", number(device_->hits)},
                                 {"device_misses", number(device_->misses)},
                                 {"device_written_rows", number(device_->written_back)},
                                 {"device_bytes", number(device_->bytes())}});
    }
    return stats;
  });
}

}  // namespace msrec
