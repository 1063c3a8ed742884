// SPDX-License-Identifier: Apache-2.0
#include "rows/gradient_sum.h"

#include <algorithm>
#include <cstring>

#include "rows/for_shards.h"

namespace msrec {
namespace {

constexpr uint32_t kNowhere = ~uint32_t{0};

}  // namespace

void GradientSum::Reset() {
  for (Part& part : parts_) {
    part.n = 0;
    part.indexed = false;
  }
  empty_ = true;
}

void GradientSum::Reserve(const Batch& batch, int dim) {
  for (int shard = 0; shard < kNumShards; ++shard) {
    Part& part = parts_[shard];
    const size_t positions = batch.begin[shard + 1] - batch.begin[shard];
    if (positions == 0) continue;
    const size_t old = part.n;
    const size_t most = old + batch.unique[shard];
    part.key.Extend(old, most);
    part.row.Extend(old, most);
    part.sum.Extend(old * dim, most * dim);
    if (old == 0) continue;
    part.map.Reset(batch.unique[shard]);
    part.number.Reset(positions);
    if (part.indexed && part.set.capacity() >= most) continue;
    part.indexed = false;
    part.set.Reset(2 * most);
  }
}

void GradientSum::Add(const Batch& batch, const Gradient& grad, int dim, const Kernels& kernels) {
  Reserve(batch, dim);
  structure_ = empty_ ? batch.structure : std::min(structure_, batch.structure);
  empty_ = false;
  ForShards(batch, [&](int shard) { AddShard(&parts_[shard], shard, batch, grad, dim, kernels); });
}

void GradientSum::AddShard(Part* part, int shard, const Batch& batch, const Gradient& grad, int dim,
                           const Kernels& kernels) {
  const size_t first = batch.begin[shard];
  const size_t positions = batch.begin[shard + 1] - first;
  const size_t distinct = batch.unique[shard];
  if (positions == 0) return;
  const size_t old = part->n;
  int64_t* keys = part->key.Extend(old, old + distinct);
  char** rows = part->row.Extend(old, old + distinct);
  float* sums = part->sum.Extend(old * dim, (old + distinct) * dim);
  const uint32_t* numbers = batch.inverse.data() + first;
  if (old == 0) {
    // In most steps, a table has only one lookup. The distinct keys of the first lookup become the
    // keys of the step.
    std::copy_n(batch.key.data() + first, distinct, keys);
    std::copy_n(batch.row.data() + first, distinct, rows);
    part->n = distinct;
  } else {
    if (!part->indexed) {
      part->set.Reset(old + distinct);
      for (size_t i = 0; i < old; ++i) part->set.FindOrAdd(keys[i], keys);
      part->indexed = true;
    }
    uint32_t* map = part->map.Reset(distinct);
    bool nowhere = false;
    for (size_t u = 0; u < distinct; ++u) {
      const int64_t key = batch.key[first + u];
      char* row = batch.row[first + u];
      const uint32_t before = part->set.size();
      map[u] = part->set.FindOrAdd(key, keys);
      const uint32_t at = map[u];
      if (at == before) {
        rows[at] = row;
      } else if (rows[at] == nullptr && row != nullptr) {
        // Earlier lookups of the step returned the unknown value, because the key was not admitted
        // yet. The new row must not receive the gradients of the unknown value, so the sum for the
        // row starts at zero.
        rows[at] = row;
        std::memset(sums + size_t{at} * dim, 0, dim * sizeof(float));
      } else if (rows[at] != nullptr && row == nullptr) {
        // If the row was removed after an earlier lookup of the step, the key's gradient is added
        // at a place that is never read.
        map[u] = kNowhere;
        nowhere = true;
      }
    }
    part->n = part->set.size();
    // The place after the last key, which no key of the lookup uses, collects the gradients of keys
    // whose rows have been removed.
    for (size_t u = 0; nowhere && u < distinct; ++u) {
      if (map[u] == kNowhere) map[u] = static_cast<uint32_t>(part->n);
    }
    uint32_t* number = part->number.Reset(positions);
    for (size_t i = 0; i < positions; ++i) number[i] = map[numbers[i]];
    numbers = number;
  }
  // Clear the sums of the new keys. If the memory includes the place after the last key, clear this
  // place, too.
  const size_t end = std::min(part->n + 1, old + distinct);
  std::memset(sums + old * dim, 0, (end - old) * dim * sizeof(float));
  AddGradient(kernels, numbers, batch.pos.data() + first, positions, grad,
              batch.pooled ? batch.bag.data() : nullptr,
              batch.pooled ? batch.weight.data() : nullptr, dim, sums);
}

size_t GradientSum::bytes() const {
  size_t total = 0;
  for (const Part& part : parts_) {
    total += part.key.bytes() + part.row.bytes() + part.sum.bytes() + part.set.bytes() +
             part.number.bytes() + part.map.bytes();
  }
  return total;
}

}  // namespace msrec
