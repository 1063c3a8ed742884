// SPDX-License-Identifier: Apache-2.0
#include "table/core/shard.h"

#include <algorithm>
#include <cmath>

#include "rows/row_values.h"
#include "table/core/row_rules.h"
#include "util/bytes.h"

namespace msrec {

Shard::Shard(const ShardContext* context, int number)
    : context_(context),
      number_(number),
      store_(context->layout.stride(), !context->identity()),
      index_(new Index(&store_)),
      candidates_(context, number),
      digests_(context, &store_, number),
      pins_(context, &store_) {
  if (context_->identity()) {
    // The identity index: key k is row k / 16 of shard k % 16. The memory is mapped, but the pages
    // are not allocated yet.
    const int64_t rows = (context_->vocabulary - number_ + kNumShards - 1) / kNumShards;
    store_.Reserve(static_cast<size_t>(std::max<int64_t>(rows, 0)));
    for (int64_t i = 0; i < rows; ++i) store_.Allocate();
  }
}

size_t Shard::size() const { return context_->identity() ? store_.live() : index_->size(); }

bool Shard::HasRoom(size_t rows) const {
  if (digests_.ComesDigested() && !digests_.HasRoom(store_.end() + rows)) return false;
  return (context_->identity() || store_.room() >= rows) && candidates_.HasRoom(rows);
}

void Shard::Reserve(size_t rows) {
  if (!context_->identity()) store_.Reserve(rows);
  if (context_->tiered) pins_.Reserve(size_t{store_.end()} + rows);
  candidates_.Reserve(rows);
  if (digests_.ComesDigested()) digests_.Grow(size_t{store_.end()} + rows);
}

void Shard::ReserveNotes(size_t keys) {
  changes_.Reserve(2 * keys);  // a row that is due is first erased and then inserted again
  if (context_->eviction.by_age()) evictions_.Reserve(keys);
  if (context_->identity()) return;
  index_->CatchUp();
  candidates_.CatchUp();
  hashes_.resize(std::max(hashes_.size(), keys));
  chunks_.resize(std::max(chunks_.size(), keys));
  places_.resize(std::max(places_.size(), keys));
}

char* Shard::Insert(uint64_t hash, int64_t key) {
  const uint32_t id = store_.Allocate();
  char* row = store_.Row(id);
  WriteFresh(*context_, row, key);
  try {
    if (context_->tiered) pins_.Begin(id);
    index_->Insert(hash, id);
  } catch (...) {
    store_.Free(id);
    throw;
  }
  if (context_->has_unseen()) digests_.Place(id);
  ++stats_.inserted;
  inserted_ = id;
  return row;
}

// Counts occurrences of a key without a row, and inserts a row if the key is admitted.
char* Shard::Admit(uint64_t hash, int64_t key, uint32_t occurrences) {
  uint32_t before = 0;
  if (!candidates_.Admit(hash, key, occurrences, &before)) {
    ++stats_.rejected;
    return nullptr;
  }
  char* row = Insert(hash, key);
  Meta(row)->count = before;  // TouchTraining adds this batch's occurrences
  return row;
}

char* Shard::IdentityRow(int64_t key) {
  char* row = store_.Row(static_cast<uint32_t>(key / kNumShards));
  // In a static table, every row has a place from the start. A row gets its first value when it is
  // first used.
  if (!Meta(row)->live) WriteFresh(*context_, row, key);
  return row;
}

void Shard::TouchTraining(char* row, uint32_t occurrences) {
  RowMeta* meta = Meta(row);
  if (context_->eviction.order == EvictionOrder::kLfuDecay) {
    float& frequency = Score(context_->layout, row);
    const double idle = static_cast<double>(context_->step - meta->last_step);
    if (idle > 0) {
      frequency *= std::exp2(static_cast<float>(-idle / context_->eviction.half_life_steps));
    }
    frequency += static_cast<float>(occurrences);
  }
  if (!context_->admission.frozen()) AddCount(meta, occurrences);
  meta->last_step = ClampStep(context_->step);
  meta->last_time = context_->time;
  Touch(row);
}

// Three passes over the keys: the first pass prefetches index chunks, the second pass prefetches
// rows, and the third pass compares keys.
void Shard::Probe(Batch* batch) {
  const size_t first = batch->begin[number_];
  const size_t n = batch->unique[number_];
  const int64_t* keys = batch->key.data() + first;
  char** rows = batch->row.data() + first;
  const size_t value_bytes = sizeof(RowMeta) + context_->layout.value_bytes();
  const size_t ahead = std::min<size_t>(value_bytes, 512);
  if (context_->identity()) {
    for (size_t i = 0; i < n; ++i) {
      rows[i] = store_.Row(static_cast<uint32_t>(keys[i] / kNumShards));
      for (size_t b = 0; b < ahead; b += kCacheLine) __builtin_prefetch(rows[i] + b);
    }
    return;
  }
  const bool scored = context_->eviction.scored();
  hashes_.resize(std::max(hashes_.size(), n));
  chunks_.resize(std::max(chunks_.size(), n));
  places_.resize(std::max(places_.size(), n));
  for (size_t i = 0; i < n; ++i) {
    hashes_[i] = IndexHash(keys[i]);
    chunks_[i] = index_->Prefetch(hashes_[i]);
  }
  for (size_t i = 0; i < n; ++i) {
    const uint32_t id = Index::Candidate(chunks_[i], hashes_[i]);
    rows[i] = id == Index::kNone ? nullptr : store_.Row(id);
    places_[i] = id;
    if (rows[i] == nullptr) continue;
    for (size_t b = 0; b < ahead; b += kCacheLine) __builtin_prefetch(rows[i] + b);
    __builtin_prefetch(rows[i] + ahead - 1);
    // A training lookup also writes the score, which is the row's last float.
    if (scored) __builtin_prefetch(rows[i] + store_.stride() - sizeof(float));
  }
  for (size_t i = 0; i < n; ++i) {
    if (rows[i] != nullptr && Meta(rows[i])->key == keys[i]) continue;
    const uint32_t id = index_->Find(hashes_[i], keys[i]);
    rows[i] = id == Index::kNone ? nullptr : store_.Row(id);
    places_[i] = id;
  }
}

void Shard::Resolve(Batch* batch, LookupPurpose purpose) {
  switch (purpose) {
    case LookupPurpose::kTrain:
    case LookupPurpose::kInsert:
      return FindOrInsert(batch, HoldFor(purpose));
    case LookupPurpose::kPut:
      return FindOrPut(batch);
    default:
      return FindOnly(batch);
  }
}

void Shard::FindOrInsert(Batch* batch, Hold hold) {
  if (!batch->probed) Probe(batch);
  const size_t first = batch->begin[number_];
  const size_t n = batch->unique[number_];
  for (size_t i = 0; i < n; ++i) {
    char*& row = batch->row[first + i];
    const int64_t key = batch->key[first + i];
    const uint32_t occurrences = batch->Occurrences(first + i);
    if (context_->identity()) {
      row = IdentityRow(key);
    } else if (row != nullptr && context_->Due(*Meta(row))) {
      // A row that is due for eviction counts as missing: erase the row, and treat its key as a new
      // key.
      Erase(key);
      row = Admit(hashes_[i], key, occurrences);
      if (context_->tiered && row != nullptr) pins_.HoldRow(inserted_, hold);
    } else if (row == nullptr) {
      row = Admit(hashes_[i], key, occurrences);
      if (context_->tiered && row != nullptr) pins_.HoldRow(inserted_, hold);
    }
    if (row != nullptr) TouchTraining(row, occurrences);
  }
}

void Shard::FindOnly(Batch* batch) {
  if (!batch->probed) Probe(batch);
  const size_t first = batch->begin[number_];
  const size_t n = batch->unique[number_];
  for (size_t i = 0; i < n; ++i) {
    char*& row = batch->row[first + i];
    if (context_->identity()) {
      row = IdentityRow(batch->key[first + i]);
    } else if (row != nullptr && context_->Due(*Meta(row))) {
      row = nullptr;
    }
  }
}

void Shard::FindOrPut(Batch* batch) {
  if (!batch->probed) Probe(batch);
  const size_t first = batch->begin[number_];
  const size_t n = batch->unique[number_];
  for (size_t i = 0; i < n; ++i) {
    char*& row = batch->row[first + i];
    const int64_t key = batch->key[first + i];
    if (context_->identity()) {
      row = IdentityRow(key);
    } else if (row == nullptr) {
      row = Insert(hashes_[i], key);
      candidates_.Forget(hashes_[i], key);
    } else if (context_->Due(*Meta(row))) {
      EvictDue(key);  // frees a row's memory, so the next insert needs no new memory
      row = Insert(hashes_[i], key);
    }
    TouchTraining(row, 1);
  }
}

char* Shard::Find(int64_t key) {
  if (context_->identity()) return IdentityRow(key);
  const uint32_t id = index_->Find(IndexHash(key), key);
  if (id == Index::kNone) return nullptr;
  char* row = store_.Row(id);
  return context_->Due(*Meta(row)) ? nullptr : row;
}

uint32_t Shard::Place(int64_t key) {
  if (Find(key) == nullptr) return Index::kNone;
  return context_->identity() ? static_cast<uint32_t>(key / kNumShards)
                              : index_->Find(IndexHash(key), key);
}

char* Shard::At(uint32_t place) {
  if (place >= store_.end()) return nullptr;
  char* row = store_.Row(place);
  return Meta(row)->live && !context_->Due(*Meta(row)) ? row : nullptr;
}

bool Shard::Erase(int64_t key) {
  const uint64_t hash = IndexHash(key);
  const uint32_t id = index_->Find(hash, key);
  if (id == Index::kNone) {
    candidates_.Forget(hash, key);
    return false;
  }
  const EvictionReason due = Age(context_->eviction, context_->horizon, *Meta(store_.Row(id)));
  if (due != EvictionReason::kNone) {
    Drop(id, due);
    return false;
  }
  changes_.Reserve(1);
  if (context_->device != nullptr) context_->device->Forget(number_, key);
  index_->Erase(hash, key);
  digests_.Remove(id);
  changes_.Deleted(key);
  Release(id);
  ++stats_.erased;
  return true;
}

// Frees a place whose key is no longer in the index.
void Shard::Release(uint32_t id) noexcept {
  if (context_->tiered) pins_.Depart(id, Meta(store_.Row(id))->key);
  store_.Free(id);
}

}  // namespace msrec
