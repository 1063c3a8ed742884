// SPDX-License-Identifier: Apache-2.0
//
// QuantisedRows: int64 key -> row of int8 or int4 (quantised_row.h). QuantisedRows is made for
// tables that are often read and rarely changed. Float32 rows are quantised when they are written.
//
// Without a vocabulary, keys are arbitrary, and an index (rows/index.h) maps keys to rows. The
// index takes 6.4 to 9.7 bytes per row. With a vocabulary, keys are 0 .. vocabulary - 1; every key
// has a row, and no index is needed. A lookup prefetches index entries and rows. A lookup does not
// sort ids or make ids unique.
//
// All methods are thread safe: lookups run in parallel, and a change waits until no other call
// runs. A change that throws leaves the rows unchanged. Methods throw std::invalid_argument for bad
// arguments, and std::bad_alloc if memory is short.
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

// Age limits of rows, and the time at which ages are measured. Lookups treat a row that has reached
// an age limit as missing.
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
    size_t rows = 0;   // number of rows
    size_t slabs = 0;  // allocated bytes, including memory reserved for growth
    size_t index = 0;
    size_t entries = 0;  // number of entries that fit into the index
  };

  // `bits` is 8 or 4. If `vocabulary` is 0, any key is allowed. If `aged` is true, each row stores
  // its last step and its last time. Requires: `aged` is false if there is a vocabulary.
  QuantisedRows(int32_t dim, int32_t bits, int64_t vocabulary, bool aged);
  QuantisedRows(const QuantisedRows&) = delete;
  QuantisedRows& operator=(const QuantisedRows&) = delete;

  const QuantisedLayout& layout() const { return layout_; }
  int64_t vocabulary() const { return vocabulary_; }

  // ---- changes

  // Set the rows of `keys`. If a key occurs twice, the later row counts. A null `last_steps` or
  // `last_times` means zeros.
  void Upsert(const IdView& keys, const float* values, const uint32_t* last_steps,
              const uint32_t* last_times);
  // Do the same as Upsert() for rows that are already quantised. Each row has 4 +
  // layout().code_bytes() bytes: scale, offset and codes, in the format that QuantiseNumbers
  // writes.
  void UpsertCodes(const IdView& keys, const uint8_t* rows, const uint32_t* last_steps,
                   const uint32_t* last_times);
  // Drop the rows with these keys; return the number of dropped rows. Requires: no vocabulary.
  size_t Erase(const IdView& keys);
  // Drop all rows or, if there is a vocabulary, set all rows to zeros.
  void Clear();
  // Drop the rows that have reached an age limit; return the number of dropped rows.
  size_t EraseOld(const AgeLimit& limit);
  // Set the last time to `time` in all rows whose last time is 0.
  void StampTime(uint32_t time);

  // ---- lookups
  //
  // For a key without a row, a lookup returns `unknown`. If the filter drops an id, Lookup writes
  // zeros for the id, and Pool leaves the id out of the bag. If `limit` is null, no age limit
  // applies.

  // Write the rows of ids to out [ids.size, dim]. The row of ids[i] is at row i * ids.stride of the
  // output.
  void Lookup(const IdView& ids, const IdFilter& filter, const float* unknown,
              const AgeLimit* limit, float* out) const;
  // Combine the rows of each bag into one row of out [number of bags, dim]. Throws unless the
  // offsets begin with 0, never decrease, and are at most the number of ids.
  void Pool(const IdView& ids, const IdFilter& filter, const BagView& bags, const float* unknown,
            const AgeLimit* limit, float* out) const;

  // ---- queries

  bool Contains(int64_t key, const AgeLimit* limit) const;
  // Return the last step and the last time of the row of `key`, or zeros if `key` has no row.
  RowAges AgesOf(int64_t key) const;
  std::vector<int64_t> Keys(const AgeLimit* limit) const;
  // Write the digest (rows/row_digest.h) of each key's row. The digest covers scale, offset and
  // codes. For a key without a row, the digest is 0.
  void Digests(const int64_t* keys, size_t n, uint64_t* digests) const;
  size_t Size() const;
  Memory MemoryHeld() const;
  // Use `kernels` in place of the best kernels for this processor. For tests.
  void Use(const Kernels& kernels) { kernels_ = &kernels; }

 private:
  static constexpr int kParts = 16;

  // The rows of one part. Each key belongs to one of kParts parts.
  struct Part {
    explicit Part(size_t stride, bool frees) : store(stride, frees), index(&store) {}
    SlabStore store;
    Index index;  // unused with a vocabulary
  };
  template <bool kStatic>
  class Finder;

  // Set the rows of keys; write(i, to) must write the row of keys[i] to `to`.
  template <typename Write>
  void UpsertBy(const IdView& keys, const uint32_t* last_steps, const uint32_t* last_times,
                const Write& write);

  static int PartOf(uint64_t hash) { return static_cast<int>(hash >> 32 & (kParts - 1)); }
  const char* FindRow(int64_t key) const;
  // Return whether a row has reached an age limit. If `limit` is null, return false.
  bool IsOld(const char* row, const AgeLimit* limit) const {
    return layout_.aged && limit != nullptr && limit->Passed(AgesOfQuantised(row));
  }
  const char* FindLive(int64_t key, const AgeLimit* limit) const;
  char* RowOfVocabulary(int64_t key) const {
    return parts_[0]->store.Row(static_cast<uint32_t>(key));
  }
  std::vector<std::unique_ptr<Part>> NewParts() const;
  // Call fn(row) for each row of a part, but not for freed places. The function fn must not add or
  // remove rows.
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
  std::vector<std::unique_ptr<Part>> parts_;  // a vocabulary has only one part
};

}  // namespace msrec
