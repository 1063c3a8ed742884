// SPDX-License-Identifier: Apache-2.0
//
// Placement: assigns the rows of a table to the workers of a job. Every worker has a separate Table
// with the rows that the worker owns. The code in workers/ exchanges keys, rows and gradients
// between the workers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "util/hash.h"

namespace msrec {

enum class PlacementKind : int32_t {
  kSharded = 0,  // a hash of the key selects the worker
  kOwner,        // all rows on one worker
  kReplicated,   // all rows on every worker, with identical training
};

struct Placement {
  static constexpr uint32_t kMostWorkers = 4096;  // a handle has 12 bits for the worker's index

  PlacementKind kind = PlacementKind::kSharded;
  uint32_t workers = 1;  // with only 1 worker, the kind has no effect
  uint32_t rank = 0;     // index of this worker, less than `workers`
  uint32_t owner = 0;    // with kOwner: index of the worker with the rows, less than `workers`

  // Return false if every worker has all rows of the table.
  bool spread() const { return workers > 1 && kind != PlacementKind::kReplicated; }
  bool replicated() const { return workers > 1 && kind == PlacementKind::kReplicated; }

  // Return the rank of the worker that has the row of a key; if all workers have the row, return
  // this worker's rank.
  uint32_t OwnerOf(int64_t key) const {
    if (!spread()) return rank;
    return kind == PlacementKind::kOwner ? owner : msrec::OwnerOf(key, workers);
  }
  bool Owns(int64_t key) const { return OwnerOf(key) == rank; }

  // `whole` is a limit of rows or bytes for the whole table. Return this worker's part of the limit
  // `whole`. The part is at least 1 if `whole` is at least 1. A negative `whole` means no limit and
  // is returned unchanged.
  int64_t Share(int64_t whole) const {
    if (whole <= 0 || !spread() || kind == PlacementKind::kOwner) return whole;
    const int64_t n = workers;
    return std::max<int64_t>(whole / n + (rank < whole % n ? 1 : 0), 1);
  }
};

}  // namespace msrec
