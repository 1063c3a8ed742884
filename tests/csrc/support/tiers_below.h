// SPDX-License-Identifier: Apache-2.0
//
// Tiers below a table that is watched: so few rows stay in host memory that most are below, walks
// over them give rows again, and files are so small that they are collected all the time.
#pragma once

#include <memory>
#include <string>

#include "map_tier.h"
#include "table/cache/settings.h"
#include "tier_testing.h"

namespace msrec {

enum class Below { kNothing, kMap, kTwoMaps, kSsd };

class TiersBelow {
 public:
  TiersBelow(Below kind, uint64_t seed) : kind_(kind), seed_(seed) {
    if (kind == Below::kSsd) files_ = std::make_unique<TestDirectory>(true);
  }

  bool any() const { return kind_ != Below::kNothing; }

  // Settings that open them. Requires that this outlives the table.
  CacheSettings Settings(int64_t host_rows) {
    CacheSettings settings;
    settings.host_rows = host_rows;
    settings.by_count = seed_ % 2 == 1;
    const auto map = [this](size_t row_bytes, int generation) {
      auto tier = std::make_shared<MapTier>(row_bytes);
      tier->MoveRows(seed_ + static_cast<uint64_t>(generation));
      return tier;
    };
    if (kind_ == Below::kTwoMaps) settings.levels.push_back({"remote", map, host_rows / 3});
    if (kind_ != Below::kSsd) {
      settings.levels.push_back({"ssd", map, -1});
      return settings;
    }
    settings.levels.push_back({"ssd",
                               [this](size_t row_bytes, int generation) {
                                 SsdOptions options = SmallOptions(files_->path() + "/" +
                                                                   std::to_string(generation));
                                 options.row_bytes = row_bytes;
                                 options.segment_bytes = 32 << 10;
                                 options.gc_ratio = 1.06;
                                 return std::make_shared<SsdTier>(options);
                               },
                               -1});
    return settings;
  }

 private:
  const Below kind_;
  const uint64_t seed_;
  std::unique_ptr<TestDirectory> files_;
};

}  // namespace msrec
