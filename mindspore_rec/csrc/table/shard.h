// SPDX-License-Identifier: Apache-2.0
//
// Shard: 1/16 of a table, by a hash of the key. A sequential data structure that one thread works
// on at a time; all parallelism of a table is over shards, so results never depend on the number of
// threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "init/initializer.h"
#include "optim/kernels.h"
#include "optim/rule.h"
#include "policy/admission.h"
#include "policy/eviction.h"
#include "table/batch.h"
#include "table/change_log.h"
#include "table/index.h"
#include "table/row_layout.h"
#include "table/slab_store.h"

namespace msrec {

// What all shards of a table share. Changed only between batched operations.
struct ShardContext {
  RowLayout layout;
  Initializer initializer;
  Rule rule;
  Admission admission;
  Eviction eviction;
  int64_t step = 0;        // completed training steps of the table
  uint32_t time = 0;       // event time of the current batch, seconds
  int64_t vocabulary = 0;  // > 0: keys are 0 .. vocabulary - 1 and are their own index
  const Kernels* kernels = nullptr;

  bool identity() const { return vocabulary > 0; }
};

struct ShardStats {
  uint64_t inserted = 0;
  uint64_t evicted = 0;
  uint64_t erased = 0;
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

class Shard {
 public:
  // Shard number `number` of its table; context outlives it.
  Shard(const ShardContext* context, int number);

  // ---- batched, on this shard's part of a batch that MakeUnique has run on ----

  // Whether Reserve would have nothing to do.
  bool HasRoom(size_t rows) const;
  // Makes room so that FindOrInsert cannot run out of memory for rows. Throws std::bad_alloc.
  void Reserve(size_t rows);
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
  // Marks that a row's contents changed in this step.
  void Touch(char* row) { changes_.Touch(Meta(row)); }

  // Marks that every row changed.
  void TouchAll();

  // ---- whole shard ----

  // One step's share of the sweep.
  void EvictSome() { EvictSlice(SliceRows(store_.end() + size_t{candidates_.end()})); }
  // Drops due rows among the next `rows` ids, continuing where the last call stopped.
  void EvictSlice(size_t rows);
  void EvictAll() { EvictSlice(static_cast<size_t>(store_.end()) + candidates_.end()); }

  size_t size() const;
  size_t candidates() const { return candidate_index_->size(); }
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
  void Adopt(SlabStore* relaid) { store_.Swap(relaid); }
  void Clear();

  size_t row_bytes() const { return store_.bytes() + candidates_.bytes(); }
  size_t index_bytes() const { return index_->bytes() + candidate_index_->bytes(); }
  size_t log_bytes() const { return changes_.bytes(); }
  size_t index_slots() const { return index_->slots(); }
  const ShardStats& stats() const { return stats_; }

 private:
  char* Insert(uint64_t hash, int64_t key);
  char* Admit(uint64_t hash, int64_t key, uint32_t occurrences);
  char* IdentityRow(int64_t key);
  void Fresh(char* row, int64_t key);
  void TouchTraining(char* row, uint32_t occurrences);
  // Batch rows as the index has them, before any verdict.
  void Probe(Batch* batch);
  void Drop(char* row, uint32_t id);

  const ShardContext* context_;
  const int number_;
  SlabStore store_;
  std::unique_ptr<Index> index_;
  SlabStore candidates_;  // keys counted but not admitted: metadata only
  std::unique_ptr<Index> candidate_index_;
  ChangeLog changes_;
  ShardStats stats_;
  size_t cursor_ = 0;  // of the eviction sweep, over rows and then candidates
  std::vector<uint64_t> hashes_;
  std::vector<const void*> chunks_;
};

}  // namespace msrec
