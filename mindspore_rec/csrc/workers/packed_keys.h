// SPDX-License-Identifier: Apache-2.0
//
// PackedKeys: the distinct keys of a batch in the order in which they travel: those for worker 0
// first. Of a table that all workers have whole there is one part, which goes to each of them. Rows
// come back, and gradients go out, in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rows/batch.h"
#include "rows/kernels.h"
#include "table/core/placement.h"

namespace msrec {

class PackedKeys {
 public:
  // Make the batch's keys distinct and choose the part of each. The order within a part is that of
  // shards and of first appearance, so it is the same in repeated runs.
  void Plan(Batch* batch, const Placement& placement);

  size_t parts() const { return counts_.size(); }
  size_t count(size_t part) const { return counts_[part]; }
  // Number of keys of all parts.
  size_t total() const { return total_; }

  // Write the keys and their occurrences, of part p to keys[p] and occurrences[p]; null: keys only.
  void Write(const Batch& batch, int64_t* const* keys, uint32_t* const* occurrences) const;
  // Point the batch's rows to rows[p] + i * row_bytes, i counted within the part. There must
  // be the size of a row's metadata in front of rows[p].
  void Point(Batch* batch, char* const* rows, size_t row_bytes) const;
  // Return the place of the batch's key at i among the keys of all parts.
  uint32_t number(size_t i) const { return number_[i]; }
  // Sum the gradient of the lookup by key to sums, [total(), dim]. Uses the batch up.
  void Sum(Batch* batch, const Gradient& grad, int dim, const Kernels& kernels, float* sums) const;

 private:
  // Both by the batch's place of the key.
  Buffer<uint16_t> part_of_;     // below Placement::kMostWorkers
  Buffer<uint32_t> number_;      // within all parts
  std::vector<size_t> counts_;   // by part
  std::vector<size_t> begin_;    // of each part
  std::vector<size_t> written_;  // by shard and part
  size_t total_ = 0;
};

}  // namespace msrec
