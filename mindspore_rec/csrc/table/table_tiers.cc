// SPDX-License-Identifier: Apache-2.0
//
#include "table/table_tiers.h"

#include <stdexcept>
#include <utility>

#include "table/cache/row_cache.h"
#include "table/table_guard.h"

namespace msrec {

void TableTiers::SetCache(CacheSettings settings) {
  TableGuard::Run(&core_, [&] {
    engine_.quantised.Refuse("a tier below host memory");
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

int64_t TableTiers::Prefetch(const IdView& ids) {
  return TableGuard::Run(&core_, [&] {
    if (core_.cache == nullptr) {
      throw std::invalid_argument(core_.Where("has no tier below host memory to prefetch from"));
    }
    return core_.cache->prefetcher.Add(ids);
  });
}

double TableTiers::PrefetchWait(int64_t number) {
  TableMutex::Hold hold(&core_.mutex);
  if (core_.closed) throw TableClosed(core_.Where("is closed"));
  RequirePrefetched(number);
  return core_.cache->prefetcher.Wait(number, hold.lock());
}

void TableTiers::PrefetchDone(int64_t number) {
  TableGuard::Run(&core_, [&] {
    RequirePrefetched(number);
    core_.cache->prefetcher.Release(number);
  });
}

void TableTiers::RequirePrefetched(int64_t number) const {
  if (core_.cache != nullptr) return;
  throw std::invalid_argument(core_.Where("has no prefetched batch " + std::to_string(number)));
}

void TableTiers::Flush() {
  TableGuard::Run(&core_, [&] {
    if (core_.cache == nullptr) {
      throw std::invalid_argument(core_.Where("has no tier below host memory to flush to"));
    }
    core_.RequireWrittenBack();
    if (core_.device != nullptr) core_.device->WriteBackAll();
    core_.cache->tiers.Flush();
  });
}

std::pair<size_t, bool> TableTiers::Scrub(size_t most) {
  return TableGuard::Run(&core_, [&] {
    if (core_.cache == nullptr) {
      throw std::invalid_argument(core_.Where("has no tier below host memory to look through"));
    }
    return core_.cache->tiers.Scrub(most);
  });
}

}  // namespace msrec
