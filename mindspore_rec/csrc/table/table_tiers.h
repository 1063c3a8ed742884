// SPDX-License-Identifier: Apache-2.0
//
// TableTiers: the calls on the tiers below a table's host memory (table/cache/). As Table: from any
// thread, under the table's mutex, with its exceptions. Calls for tiers that the table does not
// have throw std::invalid_argument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "rows/batch.h"
#include "table/cache/settings.h"
#include "table/table_engine.h"

namespace msrec {

class TableTiers {
 public:
  // Requires: engine outlives it.
  explicit TableTiers(TableEngine* engine) : engine_(*engine), core_(engine->core) {}

  // Give the table tiers. Requires: no row was ever in it. Throws std::invalid_argument.
  void SetCache(CacheSettings settings);
  bool has_cache() const { return core_.context.tiered; }
  // Ask for the rows of a batch that is to be looked up soon, and return at once with its number.
  // Its rows stay in host memory until the batch is released.
  int64_t Prefetch(const IdView& ids);
  // Wait until they are there; return the seconds waited. Throws what went wrong, and the batch is
  // released.
  double PrefetchWait(int64_t number);
  // Release that batch and those before it: they have been used.
  void PrefetchDone(int64_t number);
  // Write every row to the tiers; when it returns, all survive kill -9, where the tiers do that.
  void Flush();
  // Go on with a walk over the records of all tiers, which reads and checks each once a round:
  // about `most` of them, 1 or more. Returns how many were read, and whether they were the last.
  // Throws RowDamaged, which names tier and key, and then begins anew; or what a tier throws.
  std::pair<size_t, bool> Scrub(size_t most);

 private:
  // Throw where the table never prefetched.
  void RequirePrefetched(int64_t number) const;

  TableEngine& engine_;
  TableParts& core_;
};

}  // namespace msrec
