// SPDX-License-Identifier: Apache-2.0
//
// GradientSum: the gradients of a step, summed by key over all lookups of the table. Gradients of
// one key are added in the order of positions, lookup after lookup, so that several lookups give
// the bits of one lookup of their concatenation, and any number of threads the bits of one.
//
// A gradient is of what its lookup has read: where that was the unknown value, since the key had no
// row in that lookup, it never reaches a row that a later lookup of the step has given the key.
#pragma once

#include <cstdint>

#include "rows/batch.h"
#include "rows/kernels.h"

namespace msrec {

class GradientSum {
 public:
  // Adds one lookup's gradient, [batch.grad_rows, dim]. Calls must come in the order of the
  // lookups. Throws std::bad_alloc, and has then added nothing.
  void Add(const Batch& batch, const Gradient& grad, int dim, const Kernels& kernels);
  void Reset();

  bool empty() const { return empty_; }
  // The oldest structure version among the batches added: older than the table's means that row
  // pointers may be stale.
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
  // Makes room, so that adding the batch cannot fail half way.
  void Reserve(const Batch& batch, int dim);
  static void AddShard(Part* part, int shard, const Batch& batch, const Gradient& grad, int dim,
                       const Kernels& kernels);

  Part parts_[kNumShards];
  bool empty_ = true;
  uint64_t structure_ = 0;
};

}  // namespace msrec
