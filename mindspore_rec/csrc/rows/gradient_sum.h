// SPDX-License-Identifier: Apache-2.0
//
// GradientSum: the gradients of a step, summed by key over all lookups of the table. The gradients
// of a key are added in the order of the lookups, and within a lookup in the order of the
// positions. Because of the fixed order, the sum is identical, bit for bit, for any number of
// threads. Splitting the ids of one lookup among several lookups does not change the sum.
//
// If a key has no row, the lookup returns the unknown value. If a later lookup in the step creates
// a row for the key, the gradient of the unknown value is never added to the row.
#pragma once

#include <cstdint>

#include "rows/batch.h"
#include "rows/kernels.h"

namespace msrec {

class GradientSum {
 public:
  // Adds the gradient [batch.grad_rows, dim] of one lookup. Add must be called in the order of the
  // lookups. If Add throws std::bad_alloc, nothing has been added.
  void Add(const Batch& batch, const Gradient& grad, int dim, const Kernels& kernels);
  void Reset();

  bool empty() const { return empty_; }
  // Returns the lowest version (TableCore::Structure) of the added batches. If the table's present
  // version is higher than the returned version, pointers to rows may be stale.
  uint64_t structure() const { return structure_; }

  struct Part {
    Buffer<int64_t> key;
    Buffer<char*> row;
    Buffer<float> sum;
    size_t n = 0;

   private:
    friend class GradientSum;
    KeySet set;
    bool indexed = false;
    Buffer<uint32_t> number;
    Buffer<uint32_t> map;
  };
  Part& part(int shard) { return parts_[shard]; }

  size_t bytes() const;

 private:
  // Allocates all memory for a batch, so that adding the batch cannot fail halfway.
  void Reserve(const Batch& batch, int dim);
  static void AddShard(Part* part, int shard, const Batch& batch, const Gradient& grad, int dim,
                       const Kernels& kernels);

  Part parts_[kNumShards];
  bool empty_ = true;
  uint64_t structure_ = 0;
};

}  // namespace msrec
