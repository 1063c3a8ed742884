// SPDX-License-Identifier: Apache-2.0
//
// Table: the tiers below host memory.
#include <stdexcept>
#include <utility>

#include "table/cache/row_cache.h"
#include "table/table_guard.h"

namespace msrec {

void Table::SetCache(CacheSettings settings) {
  Guard::Run(this, [&] {
    RefuseQuantised("a tier below host memory");
    ShardContext& context = core_.context;
    if (core_.cache != nullptr) throw std::invalid_argument(core_.Where("has a cache already"));
    CheckCacheSettings(settings, core_.Where(""));
    size_t seen = 0;
    for (const auto& shard : core_.shards) {
      seen += context.identity() ? shard->stats().inserted : shard->size();
    }
    if (seen > 0 || core_.epoch > 0) {
      throw std::invalid_argument(core_.Where("a cache must be given before the table has rows"));
    }
    context.tiered = true;
    try {
      std::vector<std::unique_ptr<Shard>> shards;
      for (int s = 0; s < kNumShards; ++s) shards.push_back(std::make_unique<Shard>(&context, s));
      core_.cache = std::make_unique<RowCache>(&core_, std::move(settings));
      core_.shards.swap(shards);
    } catch (...) {
      context.tiered = false;
      throw;
    }
    context.pins.BeginStep();
  });
}

int64_t Table::Prefetch(const IdView& ids) {
  return Guard::Run(this, [&] {
    if (core_.cache == nullptr) {
      throw std::invalid_argument(core_.Where("has no tier below host memory to prefetch from"));
    }
    return core_.cache->prefetcher.Add(ids);
  });
}

double Table::PrefetchWait(int64_t number) {
  TableMutex::Hold hold(&core_.mutex);
  if (core_.closed) throw TableClosed(core_.Where("is closed"));
  RequirePrefetched(number);
  return core_.cache->prefetcher.Wait(number, hold.lock());
}

void Table::PrefetchDone(int64_t number) {
  Guard::Run(this, [&] {
    RequirePrefetched(number);
    core_.cache->prefetcher.Release(number);
  });
}

void Table::RequirePrefetched(int64_t number) const {
  if (core_.cache != nullptr) return;
  throw std::invalid_argument(core_.Where("has no prefetched batch " + std::to_string(number)));
}

void Table::Flush() {
  Guard::Run(this, [&] {
    if (core_.cache == nullptr) {
      throw std::invalid_argument(core_.Where("has no tier below host memory to flush to"));
    }
    core_.RequireWrittenBack();
    if (core_.device != nullptr) core_.device->WriteBackAll();
    core_.cache->tiers.Flush();
  });
}

std::pair<size_t, bool> Table::ScrubTiers(size_t most) {
  return Guard::Run(this, [&] {
    if (core_.cache == nullptr) {
      throw std::invalid_argument(core_.Where("has no tier below host memory to look through"));
    }
    return core_.cache->tiers.Scrub(most);
  });
}

void Table::NoteLookup(const IdView& ids) {
  Guard::Run(this, [&] {
    core_.lookups.ReserveNote();
    core_.lookups.Note(ids);
  });
}

std::vector<std::pair<uint64_t, size_t>> Table::RecentLookups() {
  return Guard::Run(this, [&] { return core_.lookups.recent(); });
}

}  // namespace msrec
