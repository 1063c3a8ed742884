// SPDX-License-Identifier: Apache-2.0
//
// Table: admission, eviction, the clock, and what is known of a key.
#include <cmath>

#include "policy/check.h"
#include "readers/quantised_rows.h"
#include "rows/for_shards.h"
#include "rows/row_values.h"
#include "table/cache/row_cache.h"
#include "table/table_guard.h"

namespace msrec {

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
    const Eviction before = core_.context.eviction;
    evictor_.Set(eviction);
    // The digest is summed by the limits that there are.
    if ((before.max_idle_steps >= 0) != (eviction.max_idle_steps >= 0) ||
        (before.max_idle_seconds >= 0) != (eviction.max_idle_seconds >= 0)) {
      core_.DropDigest();
    }
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
    ForEachPart(keys, "scores", "set", [&](const IdView& some, size_t first) {
      const CallScope call(this);
      if (core_.cache != nullptr) {
        auto batch = core_.lookups.NewBatch(some, {});
        core_.cache->host.Promote(batch.get(), LookupPurpose::kUpdate);
        core_.lookups.Recycle(std::move(batch));
      }
      for (size_t i = 0; i < some.size; ++i) {
        Shard& shard = core_.ShardFor(some[i]);
        char* row = shard.Find(some[i]);
        if (row == nullptr) continue;
        Score(core_.context.layout, row) = scores[first + i];
        shard.Touch(row);
        ++known;
      }
    });
    return known;
  });
}

// ---------------------------------------------------------------- the clock

void Table::SetEventTime(int64_t seconds) {
  Guard::Run(this, [&] { evictor_.SetEventTime(seconds); });
}

void Table::SetClock(int64_t step, uint32_t time) {
  Guard::Run(this, [&] { evictor_.SetClock(step, time); });
}

Horizon Table::horizon() {
  return Guard::Run(this, [&] { return core_.context.horizon; });
}

void Table::SetHorizon(const Horizon& horizon) {
  Guard::Run(this, [&] { evictor_.SetHorizon(horizon); });
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

void Table::Evict(bool at_once) {
  Guard::Run(this, [&] { evictor_.Trigger(at_once); });
}

void Table::EvictAll() {
  Guard::Run(this, [&] { evictor_.EvictDue(); });
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
    if (core_.quantised != nullptr) {
      const ExportedRows found = ExportQuantised(IdView{&key, 1, true}, false);
      out.present = found.present[0];
      if (!out.present) return out;
      out.last_step = found.last_steps[0];
      out.last_time = found.last_times[0];
      double squares = 0.0;
      for (int32_t j = 0; j < found.dim; ++j) {
        squares += static_cast<double>(found.values[j]) * found.values[j];
      }
      out.norm = std::sqrt(squares);
      return out;
    }
    std::vector<char> copies;
    const char* row = reader_.Find(IdView{&key, 1, true}, &copies)[0].second;
    if (row == nullptr) {
      shard.EvictDue(key);
      if (core_.cache != nullptr && core_.cache->tiers.rows() > 0) {
        core_.cache->eviction.Evict({key},
                                    [&](const char* row) { return shard.Reason(row, false); });
      }
      if (const EvictedKey* evicted = shard.evictions().Find(key)) out.evicted = *evicted;
      out.count = shard.CandidateCount(key);
      return out;
    }
    out.present = true;
    out.count = Meta(row)->count;
    out.last_step = Meta(row)->last_step;
    out.last_time = Meta(row)->last_time;
    out.norm = std::sqrt(SquaredNormOfValue(core_.context.layout, row));
    if (core_.context.eviction.scored()) out.score = Score(core_.context.layout, row);
    return out;
  });
}

}  // namespace msrec
