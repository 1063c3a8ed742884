// SPDX-License-Identifier: Apache-2.0
//
// TierScrub: a slow walk over the records of all tiers, below the queue. It reads, and so checks,
// each record once per round: also records that training has not read for a long time, and copies
// of rows that are in host memory too. If a tier moves, writes or erases a row during the walk, the
// walk reads the row in one of its states, or the row was read and written just now. So the walk
// never reports a row that is right.
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
  // Read about `most` records and return their number. Set `ended` if these were the last records
  // of the round; the next call then begins a round. Throws RowDamaged, which names tier and key;
  // the next call then begins a round. After any other error of a tier, the next call tries the
  // same records again. Requires: Restart is called before the chain is destroyed.
  size_t Look(TierChain* chain, size_t most, bool* ended);
  // Let the next call begin a round.
  void Restart() noexcept;

 private:
  std::unique_ptr<TierScan> scan_;
  size_t level_ = 0;
  std::vector<int64_t> keys_;
  std::vector<char> rows_;
};

}  // namespace msrec
