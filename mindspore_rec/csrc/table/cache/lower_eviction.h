// SPDX-License-Identifier: Apache-2.0
//
// LowerEviction: evicts rows that are only in lower tiers. Rows that are due are already invisible,
// so a slow sweep, one slice per step, frees their space. Rows over the table's capacity are chosen
// from a sample of the sweep. LowerEviction is a part of a table and runs under the table's mutex.
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

  // Let the next slices sweep from the beginning, because the horizon was moved.
  void Trigger();
  // Evict in one step's slice of the sweep. If a tier fails, a later step tries again.
  void EvictSlice();
  // Evict all rows that have a reason to go. With `norms`, a small norm is a reason.
  void EvictAll(bool norms);
  // EvictAll() after a trigger.
  void EvictTriggered(bool norms);
  // Evict `rows` rows because of the table's capacity, the lowest priority in a sample first;
  // return the number of evicted rows. All rows in lower tiers were last used before the rows in
  // host memory.
  uint64_t EvictOverCapacity(uint64_t rows);
  // Evict each of the keys' rows that has a reason to go; return the number of evicted rows. A
  // repeated key counts once.
  size_t Evict(std::vector<int64_t> keys, const ReasonOf& reason);
  // Count a step whose eviction failed partly, and restart the sweep.
  void NoteFailure() noexcept;

  // Number of times that a failing tier delayed a part of a step's eviction.
  uint64_t failures() const { return failures_; }

 private:
  // Look at about `rows` rows. Returns true if the sweep reached the end.
  bool EvictNext(size_t rows, bool norms);

  UpperTier& upper_;
  LowerTiers& tiers_;
  bool sweeping_ = false;  // with Eviction::on_trigger: not all rows have been looked at
  uint64_t failures_ = 0;
};

}  // namespace msrec
