// SPDX-License-Identifier: Apache-2.0
#include "table/cache/tier_scrub.h"

#include <string>

#include "table/core/upper_tier.h"
#include "tier/env.h"

namespace msrec {

size_t TierScrub::Look(TierChain* chain, size_t most, bool* ended) {
  size_t looked = 0;
  *ended = false;
  while (looked < most) {
    if (level_ == chain->levels().size()) {
      Restart();
      *ended = true;
      break;
    }
    const TierChain::Level& level = chain->levels()[level_];
    try {
      if (scan_ == nullptr) scan_ = level.tier->Scan(false);
      if (scan_->Next(most - looked, &keys_, &rows_)) {
        looked += keys_.size();
        continue;
      }
    } catch (const Corruption& error) {
      Restart();
      throw RowDamaged("its " + level.kind + " tier: " + error.what());
    } catch (const RowDamaged&) {
      Restart();
      throw;
    }
    scan_.reset();
    ++level_;
  }
  return looked;
}

void TierScrub::Restart() noexcept {
  scan_.reset();
  level_ = 0;
}

}  // namespace msrec
