// SPDX-License-Identifier: Apache-2.0
//
// TierScrub: a slow walk that checks the rows of all tiers, but not the queued writes. The walk
// reads and checks each row in each tier once per round. The walk also reads rows that training has
// not read for a long time, and copies of rows that are also in host memory. If a tier moves,
// writes or erases a row during the walk, the walk reads either the old state or the new state of
// the row. The walk may miss a row that has just been read and written, but the walk never reports
// an undamaged row as damaged.
//
// TierScrub is a part of LowerTiers; the caller must hold the table's mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tier/tier_chain.h"

namespace msrec {

class TierScrub {
 public:
  // Read about `most` rows and return their number. Set `ended` to true if the round has ended; the
  // next call then begins a new round. Throws RowDamaged, with the tier's name and the key, if a
  // row is damaged. If Look has thrown RowDamaged, the next call begins a new round. If Look has
  // thrown an error other than RowDamaged, the next call reads the same rows again. Requires:
  // Restart is called before `chain` is destroyed.
  size_t Look(TierChain* chain, size_t most, bool* ended);
  // Make the next call of Look begin a round.
  void Restart() noexcept;

 private:
  std::unique_ptr<TierScan> scan_;
  size_t level_ = 0;
  std::vector<int64_t> keys_;
  std::vector<char> rows_;
};

}  // namespace msrec
