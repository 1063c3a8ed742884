// SPDX-License-Identifier: Apache-2.0
//
// CacheSettings: the limits of a table's rows in host memory, and the tiers below host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tier/tier.h"

namespace msrec {

// Name of the host tier in messages and statistics.
inline constexpr char kHostTier[] = "host";

struct LevelConfig {
  std::string kind;  // "remote" or "ssd"
  // Open the tier for rows of `row_bytes` bytes. A tier of a new generation has no rows of earlier
  // generations.
  std::function<std::shared_ptr<Tier>(size_t row_bytes, int generation)> open;
  int64_t max_rows = -1;  // further rows go to the next level; -1: no limit
};

struct CacheSettings {
  int64_t host_rows = -1;   // maximum number of rows in host memory; -1: no limit
  int64_t host_bytes = -1;  // maximum number of bytes of rows and index in host memory; -1: no
                            // limit
  bool by_count = false;  // true to demote the rows with the smallest count first, and not the rows
                          // last used earliest
  std::vector<LevelConfig> levels;
};

// Throw std::invalid_argument if a setting is out of range or if settings contradict each other.
// The message begins with `subject` ("table 'x': ").
void CheckCacheSettings(const CacheSettings& settings, const std::string& subject);

}  // namespace msrec
