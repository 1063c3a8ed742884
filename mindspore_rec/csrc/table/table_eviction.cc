// SPDX-License-Identifier: Apache-2.0
//
#include "table/table_eviction.h"

#include <cmath>

#include "policy/check.h"
#include "readers/quantised_rows.h"
#include "rows/for_shards.h"
#include "rows/row_values.h"
#include "table/cache/row_cache.h"
#include "table/table_guard.h"

namespace msrec {

void TableEviction::Set(const Eviction& eviction) {
  TableGuard::Run(&core_, [&] {
    const Eviction before = core_.context.eviction;
    engine_.evictor.Set(eviction);
    // The digest depends on which age limits are set.
    if ((before.max_idle_steps >= 0) != (eviction.max_idle_steps >= 0) ||
        (before.max_idle_seconds >= 0) != (eviction.max_idle_seconds >= 0)) {
      core_.DropDigest();
    }
  });
}

size_t TableEviction::SetScores(const IdView& keys, const float* scores) {
  return TableGuard::Run(&core_, [&] {
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
    engine_.ForEachPart(keys, "scores", "set", [&](const IdView& some, size_t first) {
      const CallScope call(&core_);
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

void TableEviction::Evict(bool at_once) {
  TableGuard::Run(&core_, [&] { engine_.evictor.Trigger(at_once); });
}

void TableEviction::EvictAll() {
  TableGuard::Run(&core_, [&] { engine_.evictor.EvictDue(); });
}

void TableEviction::Collect(bool on) {
  TableGuard::Run(&core_, [&] {
    for (const auto& shard : core_.shards) shard->evictions().Collect(on);
  });
}

std::vector<EvictedKey> TableEviction::Take() {
  return TableGuard::Run(&core_, [&] {
    size_t collected = 0;
    for (const auto& shard : core_.shards) collected += shard->evictions().collected();
    std::vector<EvictedKey> keys;
    keys.reserve(collected);
    for (const auto& shard : core_.shards) shard->evictions().Take(&keys);
    return keys;
  });
}

}  // namespace msrec
