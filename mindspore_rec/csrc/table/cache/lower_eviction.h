// SPDX-License-Identifier: Apache-2.0
//
// LowerEviction: evicts rows that are in lower tiers only. Rows that are due are invisible anyway,
// so a slow sweep, a slice a step, frees their space; rows over the table's capacity are chosen
// among a sample of the sweep. A part of a table, under its mutex.
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

  // Requires: both outlive it.
  LowerEviction(UpperTier* upper, LowerTiers* tiers) : upper_(*upper), tiers_(*tiers) {}

  // Sweep from the beginning in the slices to come: the horizon was moved.
  void Trigger();
  // Evict in one step's slice of the sweep. What a tier fails in is tried again by a later step.
  void EvictSlice();
  // Evict all rows for which there is a reason; with `norms`, a small norm is one.
  void EvictAll(bool norms);
  // The same, after a trigger.
  void EvictTriggered(bool norms);
  // Evict that many rows for the table's capacity, the lowest priority in a sample first; return
  // how many it were. All rows there have been in use longer ago than the rows in host memory.
  uint64_t EvictOverCapacity(uint64_t rows);
  // Evict each of the keys' rows for which there is a reason, a key that comes twice once; return
  // how many it were.
  size_t Evict(std::vector<int64_t> keys, const ReasonOf& reason);
  // Count a step whose eviction failed in part, and start the sweep anew.
  void NoteFailure() noexcept;

  // Number of times that a tier has put off a part of a step's eviction.
  uint64_t failures() const { return failures_; }

 private:
  // Look at about that many rows. True: the sweep came to the end.
  bool EvictNext(size_t rows, bool norms);

  UpperTier& upper_;
  LowerTiers& tiers_;
  bool sweeping_ = false;  // with Eviction::on_trigger: not all rows have been looked at
  uint64_t failures_ = 0;
};

}  // namespace msrec
