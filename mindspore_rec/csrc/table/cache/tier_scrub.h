// SPDX-License-Identifier: Apache-2.0
//
// TierScrub: a slow walk over the records of all tiers, below the queue, that reads and so checks
// each of them once a round, also those that training has not asked for in a long time. Copies of
// rows that host memory has too are among them. A row that a tier moves, writes or erases meanwhile
// is read as it was at some moment, or was read and written just now; so no finding is false.
//
// A part of LowerTiers, under the table's mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tier/tier_chain.h"

namespace msrec {

class TierScrub {
 public:
  // Read the next records, about `most` of them, and return how many; set `ended` where these were
  // the last, and the next call begins anew. Throws RowDamaged, which names tier and key, and the
  // next call begins anew; or what else a tier throws, and the next call tries the same ones again.
  // Requires: Restart is called before the chain goes.
  size_t Look(TierChain* chain, size_t most, bool* ended);
  // Have the next call begin anew.
  void Restart() noexcept;

 private:
  std::unique_ptr<TierScan> scan_;
  size_t level_ = 0;
  std::vector<int64_t> keys_;
  std::vector<char> rows_;
};

}  // namespace msrec
