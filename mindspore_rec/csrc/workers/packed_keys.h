// SPDX-License-Identifier: Apache-2.0
//
// PackedKeys: the distinct keys of a batch, in the order of the messages, with one part per worker;
// the keys for worker 0 are first. For a replicated table, all keys are in one part, which is sent
// to every worker. Rows are received, and gradients are sent, in the order of the keys.
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
  // Make the batch's keys distinct and choose the part of each key. Within a part, the keys are
  // sorted by shard and by first appearance, so the order is the same in repeated runs.
  void Plan(Batch* batch, const Placement& placement);

  size_t parts() const { return counts_.size(); }
  size_t count(size_t part) const { return counts_[part]; }
  // Total number of keys in all parts.
  size_t total() const { return total_; }

  // Write the keys of part p to keys[p], and each key's number of occurrences to occurrences[p]. If
  // `occurrences` is null, write only the keys.
  void Write(const Batch& batch, int64_t* const* keys, uint32_t* const* occurrences) const;
  // For the i-th key of part p, set the batch's row pointer to rows[p] + i * row_bytes. The memory
  // before rows[p] must have free bytes for a row's metadata.
  void Point(Batch* batch, char* const* rows, size_t row_bytes) const;
  // Return the index of the batch's key i in the concatenated keys of all parts.
  uint32_t number(size_t i) const { return number_[i]; }
  // For each key, add the gradients of all its occurrences in the lookup, and write the sums to
  // `sums` [total(), dim]. After Sum, the batch cannot be used any more.
  void Sum(Batch* batch, const Gradient& grad, int dim, const Kernels& kernels, float* sums) const;

 private:
  // part_of_ and number_ are indexed by the key's place in the batch.
  Buffer<uint16_t> part_of_;     // below Placement::kMostWorkers
  Buffer<uint32_t> number_;      // within all parts
  std::vector<size_t> counts_;   // by part
  std::vector<size_t> begin_;    // of each part
  std::vector<size_t> written_;  // by shard and part
  size_t total_ = 0;
};

}  // namespace msrec
