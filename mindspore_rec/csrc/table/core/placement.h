// SPDX-License-Identifier: Apache-2.0
//
// Placement: assigns the rows of a table to the workers of a job. Every worker has its own Table
// with the rows that it owns; workers/ exchanges keys, rows and gradients between them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "util/hash.h"

namespace msrec {

enum class PlacementKind : int32_t {
  kSharded = 0,  // by a hash of the key
  kOwner,        // all rows on one worker
  kReplicated,   // all rows on every worker, trained alike
};

struct Placement {
  static constexpr uint32_t kMostWorkers = 4096;  // a handle has 12 bits for the worker

  PlacementKind kind = PlacementKind::kSharded;
  uint32_t workers = 1;  // 1: there are no others, and the kind has no effect
  uint32_t rank = 0;     // this worker, below `workers`
  uint32_t owner = 0;    // kOwner: who has the rows, below `workers`

  // Whether other workers have rows that this worker lacks.
  bool spread() const { return workers > 1 && kind != PlacementKind::kReplicated; }
  bool replicated() const { return workers > 1 && kind == PlacementKind::kReplicated; }

  // Return the worker that has the row of a key. If all workers have the row, return this worker.
  uint32_t OwnerOf(int64_t key) const {
    if (!spread()) return rank;
    return kind == PlacementKind::kOwner ? owner : msrec::OwnerOf(key, workers);
  }
  bool Owns(int64_t key) const { return OwnerOf(key) == rank; }

  // Return this worker's part of a number of rows or bytes that is set for the whole table. The
  // part is at least 1 if the whole number is at least 1. A negative number, which means no limit,
  // is returned unchanged.
  int64_t Share(int64_t whole) const {
    if (whole <= 0 || !spread() || kind == PlacementKind::kOwner) return whole;
    const int64_t n = workers;
    return std::max<int64_t>(whole / n + (rank < whole % n ? 1 : 0), 1);
  }
};

}  // namespace msrec
