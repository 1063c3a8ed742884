// SPDX-License-Identifier: Apache-2.0
//
// QuantisedRows: int64 key -> row of int8 or int4 (quantised_row.h). QuantisedRows is for tables
// with many reads and few changes; float32 rows are quantised when they are set.
//
// Without a vocabulary, keys are arbitrary, and an index (rows/index.h) of 6.4 to 9.7 bytes per row
// finds them. With a vocabulary, keys are 0 .. vocabulary - 1; they need no index and always have a
// row. Lookups prefetch index and rows and read no row twice; they do not sort ids or make them
// unique.
//
// Any thread may call: lookups run in parallel, and a change excludes all other calls. A change
// that throws leaves the rows unchanged. Throws std::invalid_argument for bad arguments, and
// std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <shared_mutex>
#include <vector>

#include "policy/eviction.h"
#include "rows/bags.h"
#include "rows/batch.h"
#include "rows/index.h"
#include "rows/kernels.h"
#include "rows/quantised_row.h"
#include "rows/slab_store.h"

namespace msrec {

// Age limits of rows at a given time. A row older than a limit reads like a missing row.
struct AgeLimit {
  Eviction eviction;
  Horizon at;

  bool Passed(const RowAges& ages) const {
    RowMeta meta = {};
    meta.last_step = ages.last_step;
    meta.last_time = ages.last_time;
    return Age(eviction, at, meta) != EvictionReason::kNone;
  }
};

class QuantisedRows {
 public:
  struct Memory {
    size_t rows = 0;   // number of them
    size_t slabs = 0;  // bytes held, room for growth included
    size_t index = 0;
    size_t entries = 0;  // that there is room for in the index
  };

  // bits: 8 or 4. vocabulary: 0 allows any keys. aged: whether rows keep their last step and time.
  // Requires: rows of a vocabulary are not aged.
  QuantisedRows(int32_t dim, int32_t bits, int64_t vocabulary, bool aged);
  QuantisedRows(const QuantisedRows&) = delete;
  QuantisedRows& operator=(const QuantisedRows&) = delete;

  const QuantisedLayout& layout() const { return layout_; }
  int64_t vocabulary() const { return vocabulary_; }

  // ---- changes

  // Set the rows of keys. If a key occurs twice, its last row is kept. Null ages count as 0.
  void Upsert(const IdView& keys, const float* values, const uint32_t* last_steps,
              const uint32_t* last_times);
  // Upsert() for rows that are already quantised: the scale, offset and codes of each row, as
  // QuantiseNumbers writes them, in 4 + layout().code_bytes() bytes.
  void UpsertCodes(const IdView& keys, const uint8_t* rows, const uint32_t* last_steps,
                   const uint32_t* last_times);
  // Drop the rows of keys; return the number of dropped rows. Requires: no vocabulary.
  size_t Erase(const IdView& keys);
  // Drop all rows; rows of a vocabulary become zeros.
  void Clear();
  // Drop the rows that are too old; return the number of dropped rows.
  size_t EraseOld(const AgeLimit& limit);
  // Set the time of rows that have time 0.
  void StampTime(uint32_t time);

  // ---- lookups
  //
  // Keys without a row read `unknown`. Ids that the filter drops read zeros, or are left out of
  // their bag. With a null limit, no row is too old.

  // Write the rows of ids to out [ids.size, dim]; output rows are ids.stride rows apart.
  void Lookup(const IdView& ids, const IdFilter& filter, const float* unknown,
              const AgeLimit* limit, float* out) const;
  // Write the combined rows of each bag to out, [number of bags, dim]. Throws unless offsets rise
  // from 0 to at most the number of ids.
  void Pool(const IdView& ids, const IdFilter& filter, const BagView& bags, const float* unknown,
            const AgeLimit* limit, float* out) const;

  // ---- queries

  bool Contains(int64_t key, const AgeLimit* limit) const;
  // Return the ages of the row of key; zeros if there is no such row.
  RowAges AgesOf(int64_t key) const;
  std::vector<int64_t> Keys(const AgeLimit* limit) const;
  // Write the digests (rows/row_digest.h) of scale, offset and codes of the keys' rows; 0 for keys
  // without a row.
  void Digests(const int64_t* keys, size_t n, uint64_t* digests) const;
  size_t Size() const;
  Memory MemoryHeld() const;
  // Use the given kernels instead of the processor's best kernels. For tests.
  void Use(const Kernels& kernels) { kernels_ = &kernels; }

 private:
  static constexpr int kParts = 16;

  // The rows of one part of the keys.
  struct Part {
    explicit Part(size_t stride, bool frees) : store(stride, frees), index(&store) {}
    SlabStore store;
    Index index;  // unused with a vocabulary
  };
  template <bool kStatic>
  class Finder;

  // Set rows; write(i, to) writes the row of keys[i].
  template <typename Write>
  void UpsertBy(const IdView& keys, const uint32_t* last_steps, const uint32_t* last_times,
                const Write& write);

  static int PartOf(uint64_t hash) { return static_cast<int>(hash >> 32 & (kParts - 1)); }
  const char* FindRow(int64_t key) const;
  // Whether a row is too old. With a null limit, no row is too old.
  bool IsOld(const char* row, const AgeLimit* limit) const {
    return layout_.aged && limit != nullptr && limit->Passed(AgesOfQuantised(row));
  }
  const char* FindLive(int64_t key, const AgeLimit* limit) const;
  char* RowOfVocabulary(int64_t key) const {
    return parts_[0]->store.Row(static_cast<uint32_t>(key));
  }
  std::vector<std::unique_ptr<Part>> NewParts() const;
  // Call fn(row) for all rows of a part that have a key. The function fn must not add or remove
  // rows.
  void ForEachRow(const Part& part, const std::function<void(char*)>& fn) const;
  template <bool kStatic>
  void LookupBy(const IdView& ids, const IdFilter& filter, const float* unknown,
                const AgeLimit* limit, float* out) const;
  template <bool kStatic>
  void PoolBy(const IdView& ids, const IdFilter& filter, const BagView& bags, const float* unknown,
              const AgeLimit* limit, float* out) const;
  auto PoolKernel() const { return kernels_->pool_quantised[layout_.bits == 8 ? 0 : 1]; }

  QuantisedLayout layout_;
  const int64_t vocabulary_;
  const Kernels* kernels_ = &ActiveKernels();
  mutable std::shared_mutex mutex_;
  std::vector<std::unique_ptr<Part>> parts_;  // of a vocabulary: one
};

}  // namespace msrec
