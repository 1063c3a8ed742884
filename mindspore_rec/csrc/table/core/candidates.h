// SPDX-License-Identifier: Apache-2.0
//
// Candidates: counts of the keys of a shard that have no row yet, so that admission can decide
// about them: an exact counter a key, or a sketch. Not thread safe; one shard owns it.
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
  // Counters of shard number `number`; context outlives it. Throws std::bad_alloc.
  Candidates(const ShardContext* context, int number);

  // Whether so many keys may come without needing memory.
  bool HasRoom(size_t keys) const;
  void Reserve(size_t keys);
  // Do now what memory was short for before. Throws std::bad_alloc.
  void CatchUp() { index_->CatchUp(); }

  // Below, hash is IndexHash(key).

  // Count a key without a row. True: it is admitted now, and forgotten here; *before is its count
  // up to this batch.
  bool Admit(uint64_t hash, int64_t key, uint32_t occurrences, uint32_t* before);

  // Return the count of key; an estimate where there is a sketch.
  uint32_t Count(uint64_t hash, int64_t key);
  void Forget(uint64_t hash, int64_t key);

  // Drop the counter in place `id`, if its age has reached the limit.
  void Evict(uint32_t id);
  // Counters in place 0 .. end() - 1 may be in use.
  uint32_t end() const { return store_.end(); }
  // Append the exact counters as rows' metadata; none where there is a sketch.
  void Export(std::vector<RowMeta>* counters) const;
  // Set a counter as exported. Throws std::bad_alloc.
  void Import(uint64_t hash, const RowMeta& counter);
  CountingSketch& sketch() { return sketch_; }
  // Give counters that carry no event time the present one.
  void StampTime();
  // Make what Clear takes. Throws std::bad_alloc.
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
