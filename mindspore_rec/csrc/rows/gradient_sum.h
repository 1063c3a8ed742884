// SPDX-License-Identifier: Apache-2.0
//
// GradientSum: the gradients of a step, summed by key over all lookups of the table. Gradients of a
// key are added in the order of positions, lookup after lookup. So several lookups give the same
// bits as one lookup of their concatenation, and any number of threads gives the same bits as one
// thread.
//
// A gradient belongs to the value that its lookup has read. If a key had no row in a lookup, the
// lookup read the unknown value. The gradient of such a lookup never reaches a row that a later
// lookup of the step creates for the key.
#pragma once

#include <cstdint>

#include "rows/batch.h"
#include "rows/kernels.h"

namespace msrec {

class GradientSum {
 public:
  // Adds one lookup's gradient, [batch.grad_rows, dim]. Calls must come in the order of the
  // lookups. Throws std::bad_alloc; then nothing was added.
  void Add(const Batch& batch, const Gradient& grad, int dim, const Kernels& kernels);
  void Reset();

  bool empty() const { return empty_; }
  // The oldest structure version of the added batches. If this version is older than the table's
  // version, row pointers may be stale.
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
  // Makes room, so that adding the batch cannot fail halfway.
  void Reserve(const Batch& batch, int dim);
  static void AddShard(Part* part, int shard, const Batch& batch, const Gradient& grad, int dim,
                       const Kernels& kernels);

  Part parts_[kNumShards];
  bool empty_ = true;
  uint64_t structure_ = 0;
};

}  // namespace msrec
