// SPDX-License-Identifier: Apache-2.0
//
// Shard: 1/16 of a table, chosen by a hash of the key. A shard is a sequential data structure: only
// one thread at a time works on it. Different shards run in parallel, so results never depend on
// the number of threads.
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

// Bytes of a shard by purpose, without candidates and evicted keys.
struct ShardMemory {
  size_t rows, index, changes, digests;
};

struct ExportedRows;

// Rows as arrays, for export and import. Every array may be null. Export skips a null array, and
// Import uses default values for it.
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
  // Shard number `number` of its table; context must outlive the shard.
  Shard(const ShardContext* context, int number);

  // ---- batched operations on this shard's part of a batch, after MakeUnique ----

  // Whether Reserve would do nothing.
  bool HasRoom(size_t rows) const;
  // Make room for rows, so that Resolve cannot run out of memory. Throws std::bad_alloc.
  void Reserve(size_t rows);
  // Make room for `keys` keys in the change log and in similar records. Looking up, putting or
  // erasing these keys then needs no more memory for records. Throws std::bad_alloc.
  void ReserveNotes(size_t keys);
  // Fill batch->row with the rows that the purpose allows; keys without a row get null. The
  // purposes kTrain and kInsert insert the admitted keys, and count and touch all rows. The purpose
  // kPut inserts without admission. Any other purpose changes nothing.
  void Resolve(Batch* batch, LookupPurpose purpose);
  // Return the row of key that evaluation sees, or null.
  char* Find(int64_t key);

  // Drop the row of key, even if it is due. Returns whether evaluation saw a row, so false for a
  // row that was due.
  bool Erase(int64_t key);
  // Return the place of the row of key that evaluation sees, or Index::kNone.
  uint32_t Place(int64_t key);
  // Return the row in that place, or null if evaluation sees no row there.
  char* At(uint32_t place);
  // Record that a row's contents change in this step.
  void Touch(char* row) {
    digests_.SetFresh(false);
    changes_.Touch(Meta(row));
  }

  // ---- whole shard ----

  // Look at the next `rows` places, from the end of the last call on, and drop rows that are due.
  // With `norms`, also drop rows of a small norm. Returns whether the slice reached the last place.
  bool EvictSlice(size_t rows, bool norms);
  // Let the next slice begin at the first place.
  void RestartSweep() { cursor_ = 0; }
  // Drop the row of key if it is due.
  void EvictDue(int64_t key);
  // Number of places that the sweep visits.
  size_t places() const { return static_cast<size_t>(store_.end()) + candidates_.end(); }
  // Sample candidates for about n rows to evict because of the capacity. From kSampled * n + 64
  // consecutive rows, the 2 n + 64 rows of the lowest priority are taken.
  void EvictionCandidates(size_t n, VictimCandidates* candidates);
  // Drop the row in that place because of the capacity.
  void EvictOverCapacity(uint32_t place) { Drop(place, EvictionReason::kCapacity); }

  size_t size() const;
  // Counts of the keys without rows.
  Candidates& candidates() { return candidates_; }
  EvictionLog& evictions() { return evictions_; }
  // Changed keys by epoch. Only BeginEpoch begins an epoch, and only StopRecording ends the
  // recording. Touch records rows.
  ChangeLog& changes() { return changes_; }
  // The digests of rows, if they are kept. Keep requires that the shard's changes are recorded.
  ShardDigests& digests() { return digests_; }
  // With lower tiers: the rows held in host memory, and the rows with copies in lower tiers.
  RowPins& pins() { return pins_; }
  // Set the current time in rows without an event time.
  void StampTime();
  // Return the live rows, in row order. The result may include rows that are due, unless EvictAll
  // was called first.
  std::vector<const char*> Rows();
  void BeginEpoch(uint64_t epoch, uint64_t oldest);
  void StopRecording();
  // Write the rows of keys that evaluation sees to the places from `first` on; absent keys are
  // marked. Requires: no vocabulary, no lower tiers, no device cache. Throws std::bad_alloc.
  void Export(const std::vector<int64_t>& keys, size_t first, ExportedRows* out);
  // Return the digest of all rows that are not due. Requires that digests are kept, and that dirty
  // rows of a device cache are written back.
  uint64_t Digest();
  // Put a row from its exported form. Null pointers in `one` mean: fresh state, count 1, the
  // current step and time.
  void Import(int64_t key, const RowArrays& one);
  // Return copies of the rows in another layout, with fresh optimizer state. The shard does not
  // change until Adopt.
  std::unique_ptr<SlabStore> Relaid(const RowLayout& layout);
  // Replace the rows by the copies of Relaid, and record that every row changed. Requires: the
  // context has the new layout. Also requires changes().Reserve(size()); without that reservation,
  // Adopt may throw halfway.
  void Adopt(SlabStore* relaid);
  // Allocate the memory that Clear takes. Throws std::bad_alloc. Clear records each row as deleted.
  struct Empty {
    std::unique_ptr<SlabStore> rows;
    std::unique_ptr<Index> index, candidates;
  };
  Empty Emptied();
  void Clear(Empty empty);

  // ---- with lower tiers (shard_tiers.cc)

  // Fill batch->row with the rows in host memory, and hold these rows (kBatch: for prefetched batch
  // `number`). Append the batch positions of the other keys to `missing`.
  void FindInHost(Batch* batch, Hold hold, uint16_t number, std::vector<uint32_t>* missing);
  // Insert a row from a lower tier and return it. Returns null if the key already has a row here.
  // Requires room.
  char* Promote(const char* block, Hold hold, uint16_t number);
  // Undo Promote: the row of key is in its lower tier only, unchanged.
  void UndoPromote(int64_t key) noexcept;
  // Whether host memory has a row of key, even if it is due.
  bool Holds(int64_t key) const { return index_->Find(IndexHash(key), key) != Index::kNone; }
  // Return whether host memory has a row of key, and hold the row for that prefetched batch.
  bool HoldAhead(int64_t key, uint16_t number);
  // Sample candidates for about n rows to demote, like EvictionCandidates. Rows that the step or
  // call holds are left out; rows that prefetched batches hold are included only with `prefetched`.
  void DemotionCandidates(size_t n, bool by_count, bool prefetched, VictimCandidates* candidates);
  // Return the row in the place of one of this shard's candidates.
  const char* RowAt(uint32_t place) const { return store_.Row(place); }
  // Free the place of a row that is in a lower tier now.
  void FreeDemoted(uint32_t place) noexcept;
  // Append copies of the rows from that place on, about `most` rows, and mark them as having copies
  // in a lower tier. Returns the next place, or Index::kNone at the end.
  uint32_t CopyRows(uint32_t place, size_t most, std::vector<int64_t>* keys,
                    std::vector<char>* rows);
  // Count and log the eviction of a row in a lower tier; `block` is its copy.
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
  // Keep the 2 n + 64 candidates of the lowest priority: more than a shard's part of n, but still
  // few.
  static void TrimCandidates(size_t n, VictimCandidates* candidates);
  // Fill batch->row from the index, including rows that are due.
  void Probe(Batch* batch);
  void Drop(uint32_t id, EvictionReason reason);
  void CountEvicted(EvictionReason reason);
  void Release(uint32_t id) noexcept;
  // Call fn(i, place) for n keys in order; a key without a row has Index::kNone. The first `bytes`
  // bytes of several rows are prefetched at once.
  template <typename Fn>
  void ForPlaces(const int64_t* keys, size_t n, size_t bytes, const Fn& fn) const;
  // Call fn(place, row) for the rows that the current epoch touched. Some rows may occur more than
  // once.
  template <typename Fn>
  void ForTouched(size_t bytes, const Fn& fn) const;
  // Hash the rows that the current epoch touched. With `clear`, also clear the dirty bits of these
  // rows.
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
