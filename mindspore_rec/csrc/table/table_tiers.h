// SPDX-License-Identifier: Apache-2.0
//
// TableTiers: the methods for the tiers below a table's host memory (table/cache/). Any thread may
// call the methods of TableTiers; the methods lock the table's mutex and throw the same exceptions
// as Table. Methods that need lower tiers throw std::invalid_argument if the table has no lower
// tiers.
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
  // Requires: engine outlives this object.
  explicit TableTiers(TableEngine* engine) : engine_(*engine), core_(engine->core) {}

  // Add lower tiers to the table. Requires: the table has never had a row. Throws
  // std::invalid_argument.
  void SetCache(CacheSettings settings);
  bool has_cache() const { return core_.context.tiered; }
  // Start to prefetch the rows of a batch that will be looked up soon. Return the batch's number
  // without waiting. The batch's rows stay in host memory until the batch is released, unless a
  // step needs the memory for other rows.
  int64_t Prefetch(const IdView& ids);
  // Wait until the prefetch of the batch with number `number` has ended; return the time of the
  // wait in seconds. If the prefetch failed, throws the prefetch's exception and releases the
  // batch.
  double PrefetchWait(int64_t number);
  // Release the batch with number `number` and all earlier batches; the rows of released batches
  // may leave host memory.
  void PrefetchDone(int64_t number);
  // Write every row to the tiers. After Flush has returned, all rows survive kill -9 if the tiers
  // guarantee durability.
  void Flush();
  // Continue a walk over all tiers: read and check about `most` further rows. In one round, the
  // walk reads each row in each tier once. Returns the number of rows read, and whether the round
  // has ended. If a row is damaged, throws RowDamaged with tier and key, and the next call starts a
  // new round. Scrub also throws the exceptions that a tier throws.
  std::pair<size_t, bool> Scrub(size_t most);

 private:
  // Throw if no batch of the table was ever prefetched.
  void RequirePrefetched(int64_t number) const;

  TableEngine& engine_;
  TableParts& core_;
};

}  // namespace msrec
