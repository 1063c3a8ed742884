// SPDX-License-Identifier: Apache-2.0
//
// LowerEviction: evicts rows that are only in lower tiers. Lookups treat rows that are due for
// eviction as missing, so a slow sweep, one slice per step, suffices to free the space of these
// rows. If the table exceeds its capacity, LowerEviction evicts rows from a sample of the rows that
// the sweep visits. LowerEviction is a part of a table; the caller must hold the table's mutex.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "policy/eviction.h"
#include "table/cache/lower_tiers.h"
#include "table/core/upper_tier.h"

namespace msrec {

class LowerEviction {
 public:
  using ReasonOf = std::function<EvictionReason(const char* row)>;

  // Requires: upper and tiers outlive this object.
  LowerEviction(UpperTier* upper, LowerTiers* tiers) : upper_(*upper), tiers_(*tiers) {}

  // Restart the sweep at the first row. Call Trigger when the time at which ages are measured has
  // changed.
  void Trigger();
  // Evict the rows that are due for eviction in the slice that the sweep visits in this step. If a
  // tier fails, a later step tries again.
  void EvictSlice();
  // Evict all rows that are due for eviction. If `norms` is true, also evict all rows with a small
  // norm.
  void EvictAll(bool norms);
  // Call EvictAll, and end the sweep that Trigger has started, because EvictAll leaves no rows for
  // the sweep.
  void EvictTriggered(bool norms);
  // Evict `rows` rows because of the table's capacity; return the number of evicted rows. In each
  // sample, the rows with the lowest priority are evicted. Rows in lower tiers are evicted first,
  // because rows in host memory were used more recently.
  uint64_t EvictOverCapacity(uint64_t rows);
  // Evict the rows of the keys in `keys` for which `reason` returns a reason other than kNone;
  // return the number of evicted rows. A repeated key counts once.
  size_t Evict(std::vector<int64_t> keys, const ReasonOf& reason);
  // Count a step in which a tier failed during eviction, and restart the sweep.
  void NoteFailure() noexcept;

  // Return the number of steps in which a tier failed during eviction.
  uint64_t failures() const { return failures_; }

 private:
  // Visit about `rows` rows, and evict the rows that EvictAll would evict. Returns true if the
  // sweep has reached the end.
  bool EvictNext(size_t rows, bool norms);

  UpperTier& upper_;
  LowerTiers& tiers_;
  bool sweeping_ = false;  // with Eviction::on_trigger: true until the sweep has visited all rows
  uint64_t failures_ = 0;
};

}  // namespace msrec
