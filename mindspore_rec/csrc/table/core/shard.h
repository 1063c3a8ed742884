// SPDX-License-Identifier: Apache-2.0
//
// Shard: 1/16 of a table. A hash of the key chooses the shard; in a table with an identity index,
// the key's low bits choose the shard. A shard is a sequential data structure, and only one thread
// at a time works on a shard. Threads work on different shards in parallel, so results never depend
// on the number of threads.
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
  uint64_t rejected = 0;  // number of keys of batches that were not admitted
  uint64_t evicted_by_age = 0;
  uint64_t evicted_by_capacity = 0;
  uint64_t evicted_by_norm = 0;
  uint64_t erased = 0;

  uint64_t removed() const {
    return evicted_by_age + evicted_by_capacity + evicted_by_norm + erased;
  }
};

// Memory of a shard, in bytes. The memory of the candidates and of the eviction log is not counted.
struct ShardMemory {
  size_t rows, index, changes, digests;
};

struct ExportedRows;

// Arrays of rows for Shard::Import. If an array is null, Shard::Import uses default values.
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
  // Creates shard `number` of a table. `context` must outlive the shard.
  Shard(const ShardContext* context, int number);

  // ---- batched operations on this shard's part of a batch, after MakeUnique ----

  // Return true if memory for `rows` new rows is already reserved.
  bool HasRoom(size_t rows) const;
  // Reserve memory for `rows` new rows, so that Resolve cannot run out of memory. Throws
  // std::bad_alloc.
  void Reserve(size_t rows);
  // Reserve memory for `keys` keys in the change log and in the eviction log. After this call,
  // lookups, puts and erasures of `keys` keys allocate no memory for logs. Throws std::bad_alloc.
  void ReserveNotes(size_t keys);
  // Fill batch->row with the rows of the keys; for a key without a row, the entry is null. If the
  // purpose is kTrain or kInsert, admitted keys get rows, and all rows are counted and touched. If
  // the purpose is kPut, all keys get rows, even if the admission policy would not admit the keys,
  // and all rows are counted once and touched. For any other purpose, Resolve does not change the
  // shard.
  void Resolve(Batch* batch, LookupPurpose purpose);
  // Return the row of `key`; null if there is no row or if the row is due for eviction.
  char* Find(int64_t key);

  // Drop the row of `key`, even if the row is due for eviction. Returns true if the row existed and
  // was not due for eviction.
  bool Erase(int64_t key);
  // Return the place of the row of `key`; Index::kNone if there is no row or if the row is due for
  // eviction.
  uint32_t Place(int64_t key);
  // Return the row in `place`; null if there is no row or if the row is due for eviction.
  char* At(uint32_t place);
  // Record that a row's contents change in this step.
  void Touch(char* row) {
    digests_.SetFresh(false);
    changes_.Touch(Meta(row));
  }

  // ---- whole shard ----

  // Visit the next `rows` places after the last visited place, and drop rows due for eviction. If
  // `norms` is true, also drop rows with a small norm. Returns true if the shard's last place has
  // been visited.
  bool EvictSlice(size_t rows, bool norms);
  // Let the next call of EvictSlice begin at the first place.
  void RestartSweep() { cursor_ = 0; }
  // Drop the row of `key` if the row is due for eviction.
  void EvictDue(int64_t key);
  // Return the number of places that one complete sweep visits.
  size_t places() const { return static_cast<size_t>(store_.end()) + candidates_.end(); }
  // Choose enough candidates to evict about n rows of this shard, if the table has more rows than
  // its capacity. The candidates are the 2 n + 64 rows with the lowest priority among kSampled * n
  // + 64 consecutive rows.
  void EvictionCandidates(size_t n, VictimCandidates* candidates);
  // Drop the row in `place`, because the table is over its capacity.
  void EvictOverCapacity(uint32_t place) { Drop(place, EvictionReason::kCapacity); }

  size_t size() const;
  // Return the counts of keys without rows.
  Candidates& candidates() { return candidates_; }
  EvictionLog& evictions() { return evictions_; }
  // Return the change log, which stores the changed keys of each epoch. Only BeginEpoch may begin
  // an epoch, and only StopRecording may end the recording. The method Touch of the shard adds keys
  // to the log.
  ChangeLog& changes() { return changes_; }
  // Return the object that stores the digests of the shard's rows. Call digests().Keep() only while
  // the shard's changes are recorded.
  ShardDigests& digests() { return digests_; }
  // For a table with lower tiers: return which rows must stay in host memory and which rows have
  // copies in lower tiers.
  RowPins& pins() { return pins_; }
  // Set all missing event times of rows to the current event time.
  void StampTime();
  // Return the live rows, in the order of their places. The result also includes rows that are due
  // for eviction but not evicted yet. With an identity index, the result has a row for every key of
  // the shard.
  std::vector<const char*> Rows();
  void BeginEpoch(uint64_t epoch, uint64_t oldest);
  void StopRecording();
  // Write the rows of `keys` to the arrays of `out`, beginning at place `first`. Keys without a
  // row, or with a row due for eviction, are marked as absent. Requires: the table has no
  // vocabulary, no lower tiers and no device cache. Throws std::bad_alloc.
  void Export(const std::vector<int64_t>& keys, size_t first, ExportedRows* out);
  // Return the digest of all rows that are not due for eviction. Requires: digests are kept, and
  // the dirty rows of a device cache have been written back.
  uint64_t Digest();
  // Put an exported row. If a pointer in `one` is null, the default is used: fresh state, count 1,
  // or the current step and time. If `one.values` is null, an existing row keeps its values, and a
  // new row gets its first values.
  void Import(int64_t key, const RowArrays& one);
  // Return copies of the rows in another layout, with fresh optimizer state. Relaid does not change
  // the shard; Adopt does.
  std::unique_ptr<SlabStore> Relaid(const RowLayout& layout);
  // Replace the shard's rows with `relaid`, the result of Relaid, and record that every row has
  // changed. Requires: the ShardContext already has the new layout. Also requires an earlier call
  // of changes().Reserve(size()), because otherwise Adopt may throw halfway.
  void Adopt(SlabStore* relaid);
  // Emptied() allocates memory that the caller then passes to Clear(). Throws std::bad_alloc.
  // Clear() drops all rows and records each row as deleted. `below` is added to the number of rows
  // that were erased.
  struct Empty {
    std::unique_ptr<SlabStore> rows;
    std::unique_ptr<Index> index, candidates;
  };
  Empty Emptied();
  void Clear(Empty empty, uint64_t below);

  // ---- with lower tiers (shard_tiers.cc)

  // Fill batch->row with the rows that are in host memory, and pin these rows. If `hold` is kBatch,
  // hold the rows for the prefetched batch with number `number`. Append to `missing` the positions
  // of the keys that have no row in host memory.
  void FindInHost(Batch* batch, Hold hold, uint16_t number, std::vector<uint32_t>* missing);
  // Insert a row from a lower tier and return the new row. If the key already has a row in host
  // memory, return null. Requires room.
  char* Promote(const char* block, Hold hold, uint16_t number);
  // Undo Promote: remove the row of `key` from host memory. The row in the lower tier is unchanged.
  void UndoPromote(int64_t key) noexcept;
  // Return whether host memory has a row of `key`, even if the row is due for eviction.
  bool Holds(int64_t key) const { return index_->Find(IndexHash(key), key) != Index::kNone; }
  // Return whether host memory has a row of `key`, and hold this row for the prefetched batch with
  // number `number`.
  bool HoldAhead(int64_t key, uint16_t number);
  // Choose enough candidates to demote about n rows, in the same way as EvictionCandidates. Rows
  // that must stay in host memory for the current step or call are left out. Rows that prefetched
  // batches have pinned are included only if `prefetched` is true.
  void DemotionCandidates(size_t n, bool by_count, bool prefetched, VictimCandidates* candidates);
  // Return the row that is stored in `place`.
  const char* RowAt(uint32_t place) const { return store_.Row(place); }
  // Free the place of a row that has been demoted to a lower tier.
  void FreeDemoted(uint32_t place) noexcept;
  // Append copies of at most `most` rows, beginning at `place`, and record that these rows have
  // copies in a lower tier. Returns the next place, or Index::kNone at the end.
  uint32_t CopyRows(uint32_t place, size_t most, std::vector<int64_t>* keys,
                    std::vector<char>* rows);
  // Count and log the eviction of a row in a lower tier. `block` is a copy of the row.
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
  // Keep only the 2 n + 64 candidates with the lowest priority. The table chooses the victims among
  // the candidates of all shards.
  static void TrimCandidates(size_t n, VictimCandidates* candidates);
  // Set batch->row to the rows of the keys, including rows that are due for eviction.
  void Probe(Batch* batch);
  void Drop(uint32_t id, EvictionReason reason);
  void CountEvicted(EvictionReason reason);
  void Release(uint32_t id) noexcept;
  // Call fn(i, place) for i = 0, ..., n - 1, where `place` is the place of the row of keys[i], or
  // Index::kNone if there is no row. The first `bytes` bytes of each row are prefetched, for
  // several rows at a time.
  template <typename Fn>
  void ForPlaces(const int64_t* keys, size_t n, size_t bytes, const Fn& fn) const;
  // Call fn(place, row) for the rows that were touched in the current epoch. The function fn may be
  // called more than once for a row.
  template <typename Fn>
  void ForTouched(size_t bytes, const Fn& fn) const;
  // Compute the digests of the rows that were touched in the current epoch. If `clear` is true,
  // also clear the dirty bits of these rows.
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
  size_t cursor_ = 0;    // place of the sweep, first over rows and then over candidates
  uint32_t sample_ = 0;  // place at which the next sample of candidates begins
  std::vector<uint64_t> hashes_;
  std::vector<uint32_t> places_;  // places of the batch that was probed last
  uint32_t inserted_ = 0;         // place of the last inserted row
  std::vector<const void*> chunks_;
};

}  // namespace msrec
