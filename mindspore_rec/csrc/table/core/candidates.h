// SPDX-License-Identifier: Apache-2.0
//
// Candidates: counts of a shard's keys that have no row yet. Admission needs these counts. The
// counts are either exact (one counter per key) or approximate (a sketch). Not thread safe; each
// object belongs to one shard.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "policy/admission.h"
#include "policy/sketch.h"
#include "rows/index.h"
#include "rows/row_layout.h"
#include "rows/slab_store.h"

namespace msrec {

struct ShardContext;

class Candidates {
 public:
  // Creates the counters of shard `number`. `context` must outlive this object. Throws
  // std::bad_alloc.
  Candidates(const ShardContext* context, int number);

  // True if counters for `keys` additional keys need no new memory.
  bool HasRoom(size_t keys) const;
  void Reserve(size_t keys);
  // If the index could not grow earlier because memory was short, grow the index now. Throws
  // std::bad_alloc.
  void CatchUp() { index_->CatchUp(); }

  // In the methods below, `hash` is IndexHash(key).

  // Add `occurrences` to the count of a key without a row. If the key is now admitted, drops the
  // key's counter and returns true. Sets `*before` to the key's count before this batch. If counts
  // are frozen, counts nothing and returns false.
  bool Admit(uint64_t hash, int64_t key, uint32_t occurrences, uint32_t* before);

  // Return the exact count of a key, or the estimate of the sketch.
  uint32_t Count(uint64_t hash, int64_t key);
  void Forget(uint64_t hash, int64_t key);

  // Drop the counter in place `id` if the counter's age has reached the limit.
  void Evict(uint32_t id);
  // Return an upper bound of the places: every counter in use has a place below end().
  uint32_t end() const { return store_.end(); }
  // Append the exact counters to `counters`. If the counts are in a sketch, nothing is appended.
  void Export(std::vector<RowMeta>* counters) const;
  // Set a key's counter to the value of an exported counter. Throws std::bad_alloc.
  void Import(uint64_t hash, const RowMeta& counter);
  CountingSketch& sketch() { return sketch_; }
  // Set all missing event times of counters to the current event time.
  void StampTime();
  // Allocate the empty index that the caller passes to Clear. Throws std::bad_alloc.
  std::unique_ptr<Index> Emptied() const;
  void Clear(std::unique_ptr<Index> empty) noexcept;

  size_t size() const { return index_->size(); }
  size_t bytes() const { return store_.bytes() + index_->bytes() + sketch_.bytes(); }

 private:
  bool AdmitBySketch(int64_t key, uint32_t occurrences, uint32_t* before);
  uint32_t Insert(uint64_t hash, int64_t key);
  uint32_t FindCounter(uint64_t hash, int64_t key);
  void Drop(uint64_t hash, uint32_t id);
  void DropOne();

  const ShardContext* context_;
  const int64_t bound_;  // maximum number of this shard's counters; -1: no limit
  SlabStore store_;      // metadata only
  std::unique_ptr<Index> index_;
  CountingSketch sketch_;
  uint32_t hand_ = 0;  // place at which the next search for a counter to drop begins
};

}  // namespace msrec
