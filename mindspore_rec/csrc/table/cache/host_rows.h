// SPDX-License-Identifier: Apache-2.0
//
// HostRows: the rows in host memory of a table with lower tiers. Rows that a batch needs are
// promoted; before that, rows over the capacity of host memory are demoted. Evaluation reads copies
// of rows in lower tiers and moves no row. HostRows is a part of a table and runs under the table's
// mutex.
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
  // Number of keys in one part of a call with many keys. A part is a fraction of the capacity, so
  // that rows can be demoted between the parts.
  size_t PartKeys() const;

  // Make the batch unique and find its rows. Promote the rows in lower tiers, or copy them into
  // batch->copies if the purpose is to evaluate. Make room for the rows that the shards will
  // insert, in addition to the rows in `pending` (unless null). Add the batch's absent keys to
  // `pending`. Throws if a tier fails or host memory is too small, and std::bad_alloc.
  void Promote(Batch* batch, LookupPurpose purpose, PendingRows* pending = nullptr);
  // Make room for `rows` more rows in host memory by demoting other rows; return the number of rows
  // that fit. With `prefetching`, this number may be smaller than `rows`, because rows that are
  // needed earlier stay. Without `prefetching`, too little room throws std::invalid_argument.
  size_t MakeRoom(size_t rows, bool prefetching);

  struct Stats {
    uint64_t looked_up = 0;        // distinct keys of training lookups
    uint64_t hits = 0;             // of which were in host memory
    uint64_t misses = 0;           // of which had to be read from a lower tier by the lookup itself
    uint64_t demoted = 0;          // rows
    double lookup_wait = 0.0;      // seconds that training lookups waited for lower tiers
    uint64_t evaluated = 0;        // distinct keys of lookups that change nothing
    uint64_t read_in_host = 0;     // of which were in host memory
    uint64_t read_below = 0;       // of which were found in a lower tier
    double evaluation_wait = 0.0;  // seconds that these lookups waited for lower tiers
  };
  const Stats& stats() const { return stats_; }

 private:
  // Demote about `rows` rows, the lowest priority first, and return the number of demoted rows.
  // Rows that only prefetched batches need are candidates only with `prefetched`.
  size_t Demote(size_t rows, bool prefetched);
  // Return the keys of `pending` and the batch's keys that were not found in lower tiers. `at` has
  // the positions of the keys that were searched there.
  static std::vector<int64_t> AbsentKeys(const Batch& batch, const PendingRows& pending,
                                         const std::vector<uint32_t>* missing,
                                         const std::vector<uint32_t>& at, const bool* found);
  // Let this batch read copies of rows in lower tiers.
  void ReadThrough(Batch* batch, const std::vector<uint32_t>* missing,
                   const std::vector<uint32_t>& at, const std::vector<char>& rows,
                   const bool* found);

  UpperTier& upper_;
  LowerTiers& tiers_;
  Stats stats_;
};

}  // namespace msrec
