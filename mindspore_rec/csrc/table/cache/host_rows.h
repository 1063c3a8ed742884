// SPDX-License-Identifier: Apache-2.0
//
// HostRows: the host memory of a table with lower tiers. Training promotes the rows that a batch
// needs, after other rows have been demoted to make room. Evaluation reads copies of rows in lower
// tiers, and neither promotes nor demotes rows. HostRows is a part of a table; the caller must hold
// the table's mutex.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "rows/batch.h"
#include "table/cache/lower_tiers.h"
#include "table/core/upper_tier.h"

namespace msrec {

class HostRows {
 public:
  // Requires: upper and tiers outlive this object.
  HostRows(UpperTier* upper, LowerTiers* tiers) : upper_(*upper), tiers_(*tiers) {}

  // Maximum number of rows in host memory.
  int64_t Capacity() const;
  // A call with many keys is split into parts; return the number of keys in a part. A part has
  // fewer keys than the number of rows that fit into host memory, so that rows can be demoted
  // between two parts.
  size_t PartKeys() const;

  // Make the keys of the batch unique and find their rows. Promote the rows that are in lower tiers
  // or, for evaluation, only copy these rows into batch->copies. Demote rows to make room for the
  // rows that the shards will insert. If `pending` is not null, also reserve space for the pending
  // rows, and add the batch's absent keys to `pending`. Throws if a tier fails or if host memory is
  // too small. May also throw std::bad_alloc.
  void Promote(Batch* batch, LookupPurpose purpose, PendingRows* pending = nullptr);
  // Demote rows to make room in host memory for `rows` new rows; return the number of new rows that
  // fit. If `prefetching` is true, MakeRoom does not demote rows that earlier prefetched batches
  // need, so fewer than `rows` new rows may fit. If `prefetching` is false and not all rows fit,
  // throws std::invalid_argument.
  size_t MakeRoom(size_t rows, bool prefetching);

  struct Stats {
    uint64_t looked_up = 0;  // distinct keys of training lookups
    uint64_t hits = 0;       // keys of looked_up with a row in host memory
    uint64_t misses = 0;  // keys of looked_up whose rows the lookup itself had to read from a lower
                          // tier
    uint64_t demoted = 0;          // rows
    double lookup_wait = 0.0;      // seconds that training lookups waited for lower tiers
    uint64_t evaluated = 0;        // distinct keys of lookups that change nothing
    uint64_t read_in_host = 0;     // keys of `evaluated` with a row in host memory
    uint64_t read_below = 0;       // keys of `evaluated` with a row in a lower tier
    double evaluation_wait = 0.0;  // seconds that lookups of `evaluated` waited for lower tiers
  };
  const Stats& stats() const { return stats_; }

 private:
  // Demote about `rows` rows, beginning with the lowest priority, and return the number of demoted
  // rows. Rows that a prefetched batch needs are demoted only if `prefetched` is true.
  size_t Demote(size_t rows, bool prefetched);
  // Return the keys in `pending` and in the batch that have no row in any tier. `at` contains the
  // batch positions of the keys that were looked up in lower tiers. found[i] is true if a lower
  // tier has the row of the key at position at[i].
  static std::vector<int64_t> AbsentKeys(const Batch& batch, const PendingRows& pending,
                                         const std::vector<uint32_t>* missing,
                                         const std::vector<uint32_t>& at, const bool* found);
  // Point batch->row to copies of the rows that are in lower tiers.
  void ReadThrough(Batch* batch, const std::vector<uint32_t>* missing,
                   const std::vector<uint32_t>& at, const std::vector<char>& rows,
                   const bool* found);

  UpperTier& upper_;
  LowerTiers& tiers_;
  Stats stats_;
};

}  // namespace msrec
