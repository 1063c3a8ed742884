// SPDX-License-Identifier: Apache-2.0
//
// Candidates: counts of a shard's keys that have no row yet, for the decisions of admission. The
// counts are one exact counter per key, or a sketch. Not thread safe; one shard owns it.
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
  // Counters of shard number `number`; context must outlive this object. Throws std::bad_alloc.
  Candidates(const ShardContext* context, int number);

  // True if `keys` more keys need no memory.
  bool HasRoom(size_t keys) const;
  void Reserve(size_t keys);
  // Do the work that was delayed because memory was short. Throws std::bad_alloc.
  void CatchUp() { index_->CatchUp(); }

  // In the functions below, hash is IndexHash(key).

  // Count a key without a row. Returns true if the key is admitted now; its counter is then
  // dropped. `*before` is the key's count before this batch.
  bool Admit(uint64_t hash, int64_t key, uint32_t occurrences, uint32_t* before);

  // Return the count of key, or an estimate if there is a sketch.
  uint32_t Count(uint64_t hash, int64_t key);
  void Forget(uint64_t hash, int64_t key);

  // Drop the counter in place `id`, if its age has reached the limit.
  void Evict(uint32_t id);
  // Counters that are in use have places below end().
  uint32_t end() const { return store_.end(); }
  // Append the exact counters as rows' metadata. Appends nothing if there is a sketch.
  void Export(std::vector<RowMeta>* counters) const;
  // Set a counter from its exported form. Throws std::bad_alloc.
  void Import(uint64_t hash, const RowMeta& counter);
  CountingSketch& sketch() { return sketch_; }
  // Set the current event time in counters without an event time.
  void StampTime();
  // Allocate the empty index that Clear takes. Throws std::bad_alloc.
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
  const int64_t bound_;  // of this shard's counters; -1: none
  SlabStore store_;      // metadata only
  std::unique_ptr<Index> index_;
  CountingSketch sketch_;
  uint32_t hand_ = 0;  // where the search for a counter to give up goes on
};

}  // namespace msrec
