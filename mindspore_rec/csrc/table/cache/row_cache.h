// SPDX-License-Identifier: Apache-2.0
//
// RowCache: the parts that a table needs to use host memory as a cache of lower tiers. A table
// without lower tiers has no RowCache.
#pragma once

#include <utility>

#include "table/cache/host_rows.h"
#include "table/cache/lower_eviction.h"
#include "table/cache/lower_tiers.h"
#include "table/cache/prefetcher.h"
#include "table/cache/settings.h"
#include "table/core/upper_tier.h"

namespace msrec {

struct RowCache {
  // Requires: CheckCacheSettings accepts the settings, and core outlives this object.
  RowCache(TableCore* core, CacheSettings settings)
      : upper(core),
        tiers(&upper, std::move(settings)),
        host(&upper, &tiers),
        eviction(&upper, &tiers),
        prefetcher(&upper, &tiers, &host) {}

  UpperTier upper;
  LowerTiers tiers;
  HostRows host;
  LowerEviction eviction;
  Prefetcher prefetcher;
};

}  // namespace msrec
