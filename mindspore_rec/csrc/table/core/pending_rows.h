// SPDX-License-Identifier: Apache-2.0
//
// PendingRows: the rows that prepared lookups may insert. The memory for pending rows is already
// reserved, so the next lookup must reserve additional memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rows/batch.h"

namespace msrec {

struct PendingRows {
  size_t keys[kNumShards] = {};  // an upper bound for each shard
  size_t total = 0;              // their sum
  std::vector<int64_t> absent;   // with lower tiers: the distinct keys that have no row in any tier
};

}  // namespace msrec
