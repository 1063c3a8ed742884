// SPDX-License-Identifier: Apache-2.0
//
// Shard: 1/16 of a table, by a hash of the key. A sequential data structure that one thread works
// on at a time; all parallelism of a table is over shards, so results never depend on the number of
// threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "policy/eviction.h"
#include "policy/eviction_log.h"
#include "rows/batch.h"
#include "rows/index.h"
#include "rows/row_layout.h"
#include "rows/slab_store.h"
#include "table/core/candidates.h"
#include "table/core/change_log.h"
#include "table/core/lookup_purpose.h"
#include "table/core/row_pins.h"
#include "table/core/shard_context.h"
#include "table/core/shard_digests.h"
#include "table/core/victim_candidate.h"
#include "util/bucket_hash.h"

namespace msrec {

struct ShardStats {
  uint64_t inserted = 0;
  uint64_t rejected = 0;  // keys of a batch that admission did not let in
  uint64_t evicted_by_age = 0;
  uint64_t evicted_by_capacity = 0;
  uint64_t evicted_by_norm = 0;
  uint64_t erased = 0;

  uint64_t removed() const {
    return evicted_by_age + evicted_by_capacity + evicted_by_norm + erased;
  }
};

// Bytes of a shard by their purpose, without the bytes of candidates and of evicted keys.
struct ShardMemory {
  size_t rows, index, changes, digests;
};

struct ExportedRows;

// Rows as arrays, the form in which they leave and enter a table. Every array may be null: then it
// is not written (Export) or defaults are used (Import).
struct RowArrays {
  int64_t* keys = nullptr;
  float* values = nullptr;
  float* states = nullptr;
  uint32_t* counts = nullptr;
  uint32_t* last_steps = nullptr;
  uint32_t* last_times = nullptr;
};

class Shard {
 public:
  // Shard number `number` of its table; context outlives it.
  Shard(const ShardContext* context, int number);

  // ---- batched, on this shard's part of a batch that MakeUnique has run on ----

  // Whether Reserve would have nothing to do.
  bool HasRoom(size_t rows) const;
  // Make room so that Resolve cannot run out of memory for rows. Throws std::bad_alloc.
  void Reserve(size_t rows);
  // Make room for noting that many keys, in the change log and elsewhere, so that
  // looking them up, putting or erasing them cannot run out of memory for it. Throws
  // std::bad_alloc.
  void ReserveNotes(size_t keys);
  // Fill batch->row with the rows that the purpose lets a batch have; null for keys without one.
  // kTrain and kInsert insert what admission lets in, count and touch the rest; kPut inserts past
  // admission; any other purpose changes nothing.
  void Resolve(Batch* batch, LookupPurpose purpose);
  // Return the row of key as evaluation sees it, or null.
  char* Find(int64_t key);

  // Drop the row of key, due or not. Returns whether there was a row as evaluation sees it, so
  // false for a row that was due.
  bool Erase(int64_t key);
  // Return the place of the row of key as evaluation sees it, or Index::kNone.
  uint32_t Place(int64_t key);
  // Return the row in that place, or null where there is none that evaluation sees.
  char* At(uint32_t place);
  // Note that a row's contents change in this step.
  void Touch(char* row) {
    digests_.SetFresh(false);
    changes_.Touch(Meta(row));
  }

  // ---- whole shard ----

  // Look at the next `rows` places, continuing where the last call stopped, and drop what is due;
  // with `norms`, also rows of a small norm. Returns whether it came to the last place.
  bool EvictSlice(size_t rows, bool norms);
  // Begin the next slice with the first place.
  void RestartSweep() { cursor_ = 0; }
  // Drop the row of key, if its eviction is due.
  void EvictDue(int64_t key);
  // Number of places that the sweep goes over.
  size_t places() const { return static_cast<size_t>(store_.end()) + candidates_.end(); }
  // Sample candidates for about n rows to evict over the capacity: of kSampled * n + 64
  // consecutive rows, the 2 n + 64 rows of the lowest priority.
  void EvictionCandidates(size_t n, VictimCandidates* candidates);
  // Drop the row in that place for capacity.
  void EvictOverCapacity(uint32_t place) { Drop(place, EvictionReason::kCapacity); }

  size_t size() const;
  // Keys without rows.
  Candidates& candidates() { return candidates_; }
  EvictionLog& evictions() { return evictions_; }
  // Changed keys by epochs, which begin by BeginEpoch and end by StopRecording only. Rows are
  // noted by Touch.
  ChangeLog& changes() { return changes_; }
  // The digests of rows, if they are kept. Keep is for shards whose changes are recorded.
  ShardDigests& digests() { return digests_; }
  // With lower tiers: which rows are held here, and which have copies there.
  RowPins& pins() { return pins_; }
  // Give rows without an event time the present one.
  void StampTime();
  // Return the live rows, in row order. With due rows still in place: call EvictAll first.
  std::vector<const char*> Rows();
  void BeginEpoch(uint64_t epoch, uint64_t oldest);
  void StopRecording();
  // Write the rows of keys to places `first` and on, as evaluation sees them; absent ones are
  // marked. Requires: no vocabulary, no lower tiers, no device cache. Throws std::bad_alloc.
  void Export(const std::vector<int64_t>& keys, size_t first, ExportedRows* out);
  // Return the digest of all rows that are not due. Requires that they are kept, and that what a
  // device cache has is written back.
  uint64_t Digest();
  // Put a row as exported. Null pointers in `one` mean: fresh state, count 1, the current step and
  // time.
  void Import(int64_t key, const RowArrays& one);
  // Return the rows laid out anew, with fresh optimizer state; the shard itself is unchanged until
  // Adopt.
  std::unique_ptr<SlabStore> Relaid(const RowLayout& layout);
  // Take these rows, and note that every row changed. Requires: the context has their layout;
  // changes().Reserve(size()), or it may throw half way.
  void Adopt(SlabStore* relaid);
  // Make what Clear takes. Throws std::bad_alloc. Clear notes each row as deleted.
  struct Empty {
    std::unique_ptr<SlabStore> rows;
    std::unique_ptr<Index> index, candidates;
  };
  Empty Emptied();
  void Clear(Empty empty);

  // ---- with lower tiers (shard_tiers.cc)

  // Fill batch->row with the rows that are in host memory, and hold them (kBatch: for prefetched
  // batch `number`). Append to `missing` the positions in the batch of the other keys.
  void FindInHost(Batch* batch, Hold hold, uint16_t number, std::vector<uint32_t>* missing);
  // Put a row from a lower tier in its place and return it; null where the key has a row here.
  // Requires room.
  char* Promote(const char* block, Hold hold, uint16_t number);
  // Undo that: the row of key is in its lower tier, as it was.
  void UndoPromote(int64_t key) noexcept;
  // Whether there is a row of key in host memory, due or not.
  bool Holds(int64_t key) const { return index_->Find(IndexHash(key), key) != Index::kNone; }
  // The same, and hold the row for the prefetched batch of that number.
  bool HoldAhead(int64_t key, uint16_t number);
  // Sample candidates for about n rows to demote, as EvictionCandidates does; none that the step or
  // call holds, and those that prefetched batches hold only with `prefetched`.
  void DemotionCandidates(size_t n, bool by_count, bool prefetched, VictimCandidates* candidates);
  // Return the row in a place that one of the shard's candidates has.
  const char* RowAt(uint32_t place) const { return store_.Row(place); }
  // Free the place of a row that is in a lower tier now.
  void FreeDemoted(uint32_t place) noexcept;
  // Append copies of the rows from that place on, about `most`, and note that they are in a lower
  // tier too. Returns the place to continue with, or Index::kNone.
  uint32_t CopyRows(uint32_t place, size_t most, std::vector<int64_t>* keys,
                    std::vector<char>* rows);
  // Count and remember that a row in a lower tier, which is in that block, was evicted.
  void NoteLowerEviction(const char* block, EvictionReason reason);

  ShardMemory memory() const {
    return {store_.bytes(), index_->bytes(), changes_.bytes(), digests_.bytes()};
  }
  size_t index_entries() const { return index_->entries(); }
  const ShardStats& stats() const { return stats_; }

 private:
  char* Insert(uint64_t hash, int64_t key);
  char* Admit(uint64_t hash, int64_t key, uint32_t occurrences);
  char* IdentityRow(int64_t key);
  void TouchTraining(char* row, uint32_t occurrences);
  void FindOrInsert(Batch* batch, Hold hold);
  void FindOnly(Batch* batch);
  void FindOrPut(Batch* batch);
  // Keep the 2 n + 64 candidates of the lowest priority: more than a shard's part of n, and still
  // few.
  static void TrimCandidates(size_t n, VictimCandidates* candidates);
  // Fill batch->row as the index has them, due rows among them.
  void Probe(Batch* batch);
  void Drop(uint32_t id, EvictionReason reason);
  void CountEvicted(EvictionReason reason);
  void Release(uint32_t id) noexcept;
  // Call fn(i, place) for n keys in order, with Index::kNone for keys without a row. The first
  // `bytes` of several rows are prefetched at once.
  template <typename Fn>
  void ForPlaces(const int64_t* keys, size_t n, size_t bytes, const Fn& fn) const;
  // Call fn(place, row) for the rows that the current epoch touched, some of them more than once.
  template <typename Fn>
  void ForTouched(size_t bytes, const Fn& fn) const;
  // Hash the rows that the current epoch touched; with `clear` they are not dirty any more.
  void DigestTouched(bool clear) noexcept;

  static constexpr size_t kSampled = 8;

  const ShardContext* context_;
  const int number_;
  SlabStore store_;
  std::unique_ptr<Index> index_;
  Candidates candidates_;
  ChangeLog changes_;
  EvictionLog evictions_;
  ShardStats stats_;
  ShardDigests digests_;
  RowPins pins_;         // empty without lower tiers
  size_t cursor_ = 0;    // of the sweep, over rows and then candidates
  uint32_t sample_ = 0;  // where the next sample of candidates begins
  std::vector<uint64_t> hashes_;
  std::vector<uint32_t> places_;  // of the batch that was probed last
  uint32_t inserted_ = 0;         // the place of the last insert
  std::vector<const void*> chunks_;
};

}  // namespace msrec
