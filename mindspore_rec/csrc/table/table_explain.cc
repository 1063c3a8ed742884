// SPDX-License-Identifier: Apache-2.0
//
// The method Table::Explain returns the facts that explain why a key has a row or no row.
#include <cmath>

#include "readers/quantised_rows.h"
#include "rows/row_values.h"
#include "table/cache/row_cache.h"
#include "table/core/row_rules.h"
#include "table/table.h"
#include "table/table_guard.h"

namespace msrec {

Explanation Table::Explain(int64_t key) {
  return TableGuard::Run(&core_, [&] {
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
      const ExportedRows found = engine_.quantised.Export(IdView{&key, 1, true}, false);
      out.present = found.present[0];
      if (!out.present) return out;
      out.tier = kHostTier;
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
    const char* row = engine_.reader.Find(IdView{&key, 1, true}, &copies)[0].second;
    if (row == nullptr) {
      shard.EvictDue(key);
      if (core_.cache != nullptr && core_.cache->tiers.rows() > 0) {
        core_.cache->eviction.Evict(
            {key}, [&](const char* row) { return ReasonToEvict(core_.context, row, false); });
      }
      if (const EvictedKey* evicted = shard.evictions().Find(key)) out.evicted = *evicted;
      out.count = shard.candidates().Count(IndexHash(key), key);
      return out;
    }
    out.present = true;
    const bool here = core_.cache == nullptr || shard.Holds(key);
    out.tier = here ? kHostTier : core_.cache->tiers.TierOf(key);
    out.count = Meta(row)->count;
    out.last_step = Meta(row)->last_step;
    out.last_time = Meta(row)->last_time;
    out.norm = std::sqrt(SquaredNormOfValue(core_.context.layout, row));
    if (core_.context.eviction.scored()) out.score = Score(core_.context.layout, row);
    return out;
  });
}

}  // namespace msrec
