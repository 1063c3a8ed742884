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
#include <tuple>
#include <vector>

#include "device/device_rows.h"
#include "init/initializer.h"
#include "optim/kernels.h"
#include "optim/rule.h"
#include "policy/admission.h"
#include "policy/eviction.h"
#include "policy/eviction_log.h"
#include "table/batch.h"
#include "table/candidates.h"
#include "table/change_log.h"
#include "table/index.h"
#include "table/row_layout.h"
#include "table/slab_store.h"
#include "util/bucket_hash.h"

namespace msrec {

// What keeps a row in host memory where there are tiers below: the batches that need it. Numbers
// wrap around: a row that was not touched for very long may be kept once more, which does no harm.
struct Pins {
  uint16_t step = 1;      // of the rows of this step's lookups, 15 bits
  uint16_t call = 0;      // of the rows of the call under way, 15 bits
  uint16_t released = 0;  // prefetched batches up to this number need their rows no more

  static constexpr uint16_t kMostBatches = 1024;
};

// What rows are held for: nothing, this step or call, or a prefetched batch.
enum class Hold { kNone, kUse, kNeed };

struct RowPin {
  uint16_t used : 15;  // Pins::step or Pins::call when it was last used
  uint16_t copy : 1;   // there is a copy below, which may be older
  uint16_t needed;     // the last prefetched batch that has its key
};
static_assert(sizeof(RowPin) == 4, "4 bytes a row of host memory");

// What all shards of a table share. Changed only between batched operations.
struct ShardContext {
  RowLayout layout;
  Initializer initializer;
  Rule rule;
  Admission admission;
  Eviction eviction;
  int64_t step = 0;   // completed training steps of the table
  uint32_t time = 0;  // watermark: the greatest event time so far, seconds; 0: none yet
  Horizon horizon;    // what ages are measured at
  Epochs epochs;
  int64_t vocabulary = 0;  // > 0: a static table of the keys 0 .. vocabulary - 1
  const Kernels* kernels = nullptr;
  DeviceRows* device = nullptr;  // null: there is no device cache
  bool tiered = false;           // there are tiers below host memory
  uint32_t first_time = 0;       // the first watermark: what keys from before it count as seen at
  Pins pins;

  bool is_static() const { return vocabulary > 0; }
  // Keys are their own index: every one has its place, whether it was ever seen or not.
  bool identity() const { return is_static() && !tiered; }
  bool Due(const RowMeta& meta) const {
    return eviction.by_age() && Age(eviction, horizon, meta) != EvictionReason::kNone;
  }
  // A row's frequency or score, where the order of eviction needs one, is the last float of its
  // state.
  int score_at() const { return layout.dim + layout.state_width - 1; }
};

inline uint32_t ClampStep(int64_t step) {
  return static_cast<uint32_t>(std::min<int64_t>(step, 0xffffffffLL));
}

// Floats of a row's state: the optimizer's, and its frequency or score.
inline int32_t StateWidth(const Rule& rule, const Eviction& eviction, int32_t dim) {
  return rule.StateWidth(dim) + (eviction.scored() ? 1 : 0);
}

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

// A row that may have to go where there are too many; the lower, the earlier.
struct Offer {
  double standing;
  uint32_t last_step, place;
  int shard;

  bool operator<(const Offer& other) const {
    return std::tie(standing, last_step, shard, place) <
           std::tie(other.standing, other.last_step, other.shard, other.place);
  }
};

class Shard {
 public:
  // Shard number `number` of its table; context outlives it.
  Shard(const ShardContext* context, int number);

  // ---- batched, on this shard's part of a batch that MakeUnique has run on ----

  // Whether Reserve would have nothing to do.
  bool HasRoom(size_t rows) const;
  // Makes room so that FindOrInsert cannot run out of memory for rows. Throws std::bad_alloc.
  void Reserve(size_t rows);
  // Makes room for noting what happens to that many keys, in the change log and elsewhere, so that
  // looking them up, putting or erasing them cannot run out of memory for it. Throws
  // std::bad_alloc.
  void ReserveNotes(size_t keys);
  // Training: inserts what admission lets in, counts and touches the rest. Fills batch->row.
  void FindOrInsert(Batch* batch);
  // Evaluation: never inserts, counts or touches. Fills batch->row; null for unknown or due rows.
  void FindOnly(Batch* batch);
  // Explicit put: inserts past admission. Rows come back in batch->row with their metadata touched.
  void FindOrPut(Batch* batch);
  // The row of key as evaluation sees it, or null.
  char* Find(int64_t key);

  // Whether there was a row, as evaluation sees it: one that was due is gone too, but was not
  // there.
  bool Erase(int64_t key);
  // The row of key as evaluation sees it, by its place, or Index::kNone.
  uint32_t Place(int64_t key);
  // The row in that place, or null where there is none that evaluation sees.
  char* At(uint32_t place);
  // Marks that a row's contents changed in this step.
  void Touch(char* row) { changes_.Touch(Meta(row)); }

  // Marks that every row changed. Requires ReserveChanges(size()), or may throw half way.
  void TouchAll();
  // The next n marks, deletions among them, cannot fail. Throws std::bad_alloc.
  void ReserveChanges(size_t n) { changes_.Reserve(n); }
  void ReserveEvictions(size_t n) { evictions_.Reserve(n); }

  // ---- whole shard ----

  // Looks at the next `rows` places, continuing where the last call stopped, and drops what is due;
  // with `norms`, also rows of a small norm. Whether it has come to the last place.
  bool EvictSlice(size_t rows, bool norms);
  // The next slice begins with the first place.
  void RestartSweep() { cursor_ = 0; }
  // Drops the row of key, if its eviction is due.
  void EvictDue(int64_t key);
  // Places the sweep goes over.
  size_t places() const { return static_cast<size_t>(store_.end()) + candidates_.end(); }
  // Offers rows to drop for capacity, about n of them: the first 2 n + 64, in the order of
  // eviction, of a sample of consecutive rows that is kSampled times as large as n.
  void OfferFirst(size_t n, std::vector<Offer>* offers);
  // Drops the row in that place for capacity.
  void Crowd(uint32_t place) { Drop(place, EvictionReason::kCapacity); }

  size_t size() const;
  const Candidates& candidates() const { return candidates_; }
  Candidates& candidates() { return candidates_; }
  // What is known of the count of a key without a row.
  uint32_t CandidateCount(int64_t key) { return candidates_.Count(IndexHash(key), key); }
  EvictionLog& evictions() { return evictions_; }
  // The keys that were never given an event time get the present one.
  void StampTime();
  // Live rows, in row order. With due rows still in place: call EvictAll first.
  std::vector<const char*> Rows();
  // Keys that changed since a mark, each once; present ones are those Find knows.
  void Changed(uint64_t since, std::vector<int64_t>* keys) const;
  void BeginEpoch(uint64_t epoch, uint64_t oldest);
  void Forget(uint64_t oldest) { changes_.Forget(oldest); }
  void StopRecording();
  // Puts a row as exported. Null pointers in `one` mean: fresh state, count 1, the current step and
  // time.
  void Import(int64_t key, const RowArrays& one);
  // The same rows laid out anew, with fresh optimizer state; the shard itself is unchanged until
  // Adopt.
  std::unique_ptr<SlabStore> Relaid(const RowLayout& layout);
  // One row the same way, wherever it is.
  void Relay(const char* from, const RowLayout& layout, char* to) const;
  void Adopt(SlabStore* relaid) { store_.Swap(relaid); }
  // Makes what Clear needs. Throws std::bad_alloc. Clear notes each row as deleted.
  struct Empty {
    std::unique_ptr<SlabStore> rows;
    std::unique_ptr<Index> index, candidates;
  };
  Empty Emptied();
  void Clear(Empty empty);

  // ---- with tiers below (shard_tiers.cc)

  // Fills batch->row with the rows that are here, holds them, and appends where in the batch the
  // keys are that are not here. `fetch` is the number of the batch with Hold::kNeed.
  void PinPresent(Batch* batch, Hold hold, uint16_t fetch, std::vector<uint32_t>* missing);
  // Puts a row from below in its place; null where the key is here. Requires room.
  char* BringUp(const char* block, Hold hold, uint16_t fetch);
  // The same for a key whose row below is not read, since all of it will be overwritten.
  char* BringUpBlank(int64_t key);
  // Whether there is a row of key here, due or not.
  bool Holds(int64_t key) const { return index_->Find(IndexHash(key), key) != Index::kNone; }
  // Offers rows to write down, about n of them and the first of a sample as OfferFirst does; none
  // that is pinned. With `prefetched`, those that only prefetched batches need are offered too.
  void OfferDown(size_t n, bool by_count, bool prefetched, std::vector<Offer>* offers);
  int64_t KeyAt(uint32_t place) const { return Meta(store_.Row(place))->key; }
  // Appends a copy of the row in that place.
  void CopyOne(uint32_t place, std::vector<int64_t>* keys, std::vector<char>* rows) const;
  // The row in that place is below now, and no longer here.
  void Leave(uint32_t place) noexcept;
  // Undoes BringUpBlank: the row of key is below, as it was.
  void PutBack(int64_t key) noexcept;
  // Appends copies of the rows from that place on, about `most`, marking that they are below too;
  // the place to continue with, or Index::kNone.
  uint32_t CopyDown(uint32_t place, size_t most, std::vector<int64_t>* keys,
                    std::vector<char>* rows);
  // Keys whose copies below are to be erased since the row left. Forgotten only when that is done.
  const std::vector<int64_t>& erased() const { return erased_; }
  void ForgetErased() noexcept { erased_.clear(); }
  // No row has a copy below any more.
  void ForgetCopies() noexcept;
  // What evaluation sees in a row from below: null when it is due.
  const char* View(char* block) const;
  // Why a row goes, wherever it is; kNone: it stays.
  EvictionReason Reason(const char* row, bool norms) const;
  // The first value of a key, as a row of its own.
  void FreshBlock(char* block, int64_t key) {
    Meta(block)->dirty = 0;
    Fresh(block, key);
  }
  // Counts and remembers that a row below was evicted.
  void DroppedBelow(int64_t key, EvictionReason reason);
  void NoteDeleted(int64_t key) { changes_.Deleted(key); }
  bool recording() const { return changes_.enabled(); }
  double Standing(const char* row) const;

  size_t row_bytes() const { return store_.bytes(); }
  size_t index_bytes() const { return index_->bytes(); }
  size_t log_bytes() const { return changes_.bytes(); }
  size_t index_slots() const { return index_->slots(); }
  const ShardStats& stats() const { return stats_; }

 private:
  char* Insert(uint64_t hash, int64_t key);
  char* Admit(uint64_t hash, int64_t key, uint32_t occurrences);
  char* IdentityRow(int64_t key);
  void Fresh(char* row, int64_t key);
  void TouchTraining(char* row, uint32_t occurrences);
  bool BelowNorm(const char* row) const;
  static void KeepFirst(size_t n, std::vector<Offer>* offers);
  // Batch rows as the index has them, before any verdict.
  void Probe(Batch* batch);
  void Drop(uint32_t id, EvictionReason reason);
  void CountEvicted(EvictionReason reason);
  void InitState(char* row, int state_width) const;
  void Release(uint32_t id) noexcept;
  // There will be that many more rows with a copy below. Throws std::bad_alloc.
  void NoteCopies(size_t more);
  RowPin& PinOf(uint32_t id);
  void Use(uint32_t id);
  void Stamp(RowMeta* meta) const;

  static constexpr size_t kSampled = 8;

  const ShardContext* context_;
  const int number_;
  SlabStore store_;
  std::unique_ptr<Index> index_;
  Candidates candidates_;
  ChangeLog changes_;
  EvictionLog evictions_;
  ShardStats stats_;
  std::vector<RowPin> pins_;     // by place; only with tiers below
  std::vector<int64_t> erased_;  // their copies below are to be erased; with room for all copies
  size_t copies_ = 0;            // rows with a copy below
  size_t cursor_ = 0;            // of the sweep, over rows and then candidates
  uint32_t sample_ = 0;          // where the next sample of OfferFirst begins
  std::vector<uint64_t> hashes_;
  std::vector<uint32_t> places_;  // of the batch that was probed last
  uint32_t inserted_ = 0;         // the place of the last insert
  std::vector<const void*> chunks_;
};

}  // namespace msrec
