// SPDX-License-Identifier: Apache-2.0
#include "table/shard.h"

#include <algorithm>
#include <cstring>

namespace msrec {
namespace {

constexpr size_t kLine = 64;

uint32_t ClampStep(int64_t step) {
  return static_cast<uint32_t>(std::min<int64_t>(step, 0xffffffffLL));
}

}  // namespace

Shard::Shard(const ShardContext* context, int number)
    : context_(context),
      number_(number),
      store_(context->layout.stride()),
      index_(new Index(&store_, kShardBits)),
      candidates_(sizeof(RowMeta)),
      candidate_index_(new Index(&candidates_, kShardBits)) {
  if (context_->identity()) {
    // The identity index: key k is row k / 16 of shard k % 16. Memory is mapped, not yet touched.
    const int64_t rows = (context_->vocabulary - number_ + kNumShards - 1) / kNumShards;
    store_.Reserve(static_cast<size_t>(std::max<int64_t>(rows, 0)));
    for (int64_t i = 0; i < rows; ++i) store_.Allocate();
  }
}

size_t Shard::size() const { return context_->identity() ? store_.live() : index_->size(); }

bool Shard::HasRoom(size_t rows) const {
  return (context_->identity() || store_.room() >= rows) &&
         (context_->admission.immediate() || candidates_.room() >= rows);
}

void Shard::Reserve(size_t rows) {
  if (!context_->identity()) store_.Reserve(rows);
  if (!context_->admission.immediate()) candidates_.Reserve(rows);
}

void Shard::Fresh(char* row, int64_t key) {
  RowMeta* meta = Meta(row);
  const uint32_t dirty = meta->dirty;
  *meta = RowMeta{};
  meta->key = key;
  meta->live = 1;
  meta->dirty = dirty;
  meta->last_step = ClampStep(context_->step);
  meta->last_time = context_->time;
  const int dim = context_->layout.dim;
  context_->kernels->initialize(context_->initializer, key, dim, Value(row));
  context_->rule.InitState(Value(row) + dim, dim);
}

char* Shard::Insert(uint64_t hash, int64_t key) {
  const uint32_t id = store_.Allocate();
  char* row = store_.Row(id);
  Fresh(row, key);
  try {
    index_->Insert(hash, id);
  } catch (...) {
    store_.Free(id);
    throw;
  }
  ++stats_.inserted;
  return row;
}

// Counts a key without a row; gives it one when it has reached the threshold.
char* Shard::Admit(uint64_t hash, int64_t key, uint32_t occurrences) {
  const Admission& admission = context_->admission;
  if (admission.frozen()) return nullptr;
  // Keys may still be counted from the time of a higher threshold.
  if (admission.immediate() && candidate_index_->size() == 0) return Insert(hash, key);
  uint32_t id = candidate_index_->Find(hash, key);
  if (id != Index::kNone && context_->eviction.Due(*Meta(candidates_.Row(id)), context_->step)) {
    candidate_index_->Erase(hash, key);
    candidates_.Free(id);
    id = Index::kNone;
  }
  const uint32_t before = id == Index::kNone ? 0 : Meta(candidates_.Row(id))->count;
  const uint32_t count = std::min(kMaxCount - before, occurrences) + before;
  if (admission.immediate() || admission.Admits(count)) {
    char* row = Insert(hash, key);
    Meta(row)->count = before;  // TouchTraining adds this batch's occurrences
    if (id != Index::kNone) {
      candidate_index_->Erase(hash, key);
      candidates_.Free(id);
    }
    return row;
  }
  if (id == Index::kNone) {
    id = candidates_.Allocate();
    RowMeta* meta = Meta(candidates_.Row(id));
    meta->key = key;
    meta->live = 1;
    try {
      candidate_index_->Insert(hash, id);
    } catch (...) {
      candidates_.Free(id);
      throw;
    }
  }
  RowMeta* meta = Meta(candidates_.Row(id));
  meta->count = count;
  meta->last_step = ClampStep(context_->step);
  meta->last_time = context_->time;
  return nullptr;
}

char* Shard::IdentityRow(int64_t key) {
  char* row = store_.Row(static_cast<uint32_t>(key / kNumShards));
  // A static table has all rows from the start; memory for one is filled when it is first seen.
  if (!Meta(row)->live) Fresh(row, key);
  return row;
}

void Shard::TouchTraining(char* row, uint32_t occurrences) {
  RowMeta* meta = Meta(row);
  if (!context_->admission.frozen()) AddCount(meta, occurrences);
  meta->last_step = ClampStep(context_->step);
  meta->last_time = context_->time;
  changes_.Touch(meta);
}

// Three passes, each of which starts the memory accesses that the next one needs: index lines, then
// rows.
void Shard::Probe(Batch* batch) {
  const size_t first = batch->begin[number_];
  const size_t n = batch->unique[number_];
  const int64_t* keys = batch->key.data() + first;
  char** rows = batch->row.data() + first;
  const size_t value_bytes = sizeof(RowMeta) + sizeof(float) * context_->layout.dim;
  const size_t ahead = std::min<size_t>(value_bytes, 512);
  if (context_->identity()) {
    for (size_t i = 0; i < n; ++i) {
      rows[i] = store_.Row(static_cast<uint32_t>(keys[i] / kNumShards));
      for (size_t b = 0; b < ahead; b += kLine) __builtin_prefetch(rows[i] + b);
    }
    return;
  }
  hashes_.resize(std::max(hashes_.size(), n));
  chunks_.resize(std::max(chunks_.size(), n));
  for (size_t i = 0; i < n; ++i) {
    hashes_[i] = HashKey(keys[i]);
    chunks_[i] = index_->Prefetch(hashes_[i]);
  }
  for (size_t i = 0; i < n; ++i) {
    const uint32_t id = Index::Candidate(chunks_[i], hashes_[i]);
    rows[i] = id == Index::kNone ? nullptr : store_.Row(id);
    if (rows[i] == nullptr) continue;
    for (size_t b = 0; b < ahead; b += kLine) __builtin_prefetch(rows[i] + b);
    __builtin_prefetch(rows[i] + ahead - 1);
  }
  for (size_t i = 0; i < n; ++i) {
    if (rows[i] != nullptr && Meta(rows[i])->key == keys[i]) continue;
    const uint32_t id = index_->Find(hashes_[i], keys[i]);
    rows[i] = id == Index::kNone ? nullptr : store_.Row(id);
  }
}

void Shard::FindOrInsert(Batch* batch) {
  Probe(batch);
  const size_t first = batch->begin[number_];
  const size_t n = batch->unique[number_];
  for (size_t i = 0; i < n; ++i) {
    char*& row = batch->row[first + i];
    const int64_t key = batch->key[first + i];
    const uint32_t occurrences = batch->occurrences[first + i];
    if (context_->identity()) {
      row = IdentityRow(key);
    } else if (row != nullptr && context_->eviction.Due(*Meta(row), context_->step)) {
      // Gone for the user already; what comes back is a new key, admission included.
      Erase(key);
      row = Admit(hashes_[i], key, occurrences);
    } else if (row == nullptr) {
      row = Admit(hashes_[i], key, occurrences);
    }
    if (row != nullptr) TouchTraining(row, occurrences);
  }
}

void Shard::FindOnly(Batch* batch) {
  Probe(batch);
  const size_t first = batch->begin[number_];
  const size_t n = batch->unique[number_];
  for (size_t i = 0; i < n; ++i) {
    char*& row = batch->row[first + i];
    if (context_->identity()) {
      row = IdentityRow(batch->key[first + i]);
    } else if (row != nullptr && context_->eviction.Due(*Meta(row), context_->step)) {
      row = nullptr;
    }
  }
}

void Shard::FindOrPut(Batch* batch) {
  Probe(batch);
  const size_t first = batch->begin[number_];
  const size_t n = batch->unique[number_];
  for (size_t i = 0; i < n; ++i) {
    char*& row = batch->row[first + i];
    const int64_t key = batch->key[first + i];
    if (context_->identity()) {
      row = IdentityRow(key);
    } else if (row == nullptr) {
      row = Insert(hashes_[i], key);
      const uint32_t counted = candidate_index_->Erase(hashes_[i], key);
      if (counted != Index::kNone) candidates_.Free(counted);
    } else if (context_->eviction.Due(*Meta(row), context_->step)) {
      Fresh(row, key);
    }
    TouchTraining(row, 1);
  }
}

char* Shard::Find(int64_t key) {
  if (context_->identity()) return IdentityRow(key);
  const uint32_t id = index_->Find(HashKey(key), key);
  if (id == Index::kNone) return nullptr;
  char* row = store_.Row(id);
  return context_->eviction.Due(*Meta(row), context_->step) ? nullptr : row;
}

bool Shard::Erase(int64_t key) {
  const uint64_t hash = HashKey(key);
  const uint32_t counted = candidate_index_->Erase(hash, key);
  if (counted != Index::kNone) candidates_.Free(counted);
  const uint32_t id = index_->Erase(hash, key);
  if (id == Index::kNone) return false;
  const bool due = context_->eviction.Due(*Meta(store_.Row(id)), context_->step);
  changes_.Deleted(key);
  store_.Free(id);
  ++(due ? stats_.evicted : stats_.erased);
  return !due;
}

void Shard::Drop(char* row, uint32_t id) {
  const int64_t key = Meta(row)->key;
  index_->Erase(HashKey(key), key);
  changes_.Deleted(key);
  store_.Free(id);
  ++stats_.evicted;
}

void Shard::EvictSlice(size_t rows) {
  const size_t total = static_cast<size_t>(store_.end()) + candidates_.end();
  if (context_->identity() || !context_->eviction.enabled() || total == 0) return;
  for (size_t looked = 0; looked < std::min(rows, total); ++looked) {
    if (cursor_ >= total) cursor_ = 0;
    if (cursor_ < store_.end()) {
      const auto id = static_cast<uint32_t>(cursor_);
      char* row = store_.Row(id);
      if (Meta(row)->live && context_->eviction.Due(*Meta(row), context_->step)) Drop(row, id);
    } else {
      const auto id = static_cast<uint32_t>(cursor_ - store_.end());
      const RowMeta* meta = Meta(candidates_.Row(id));
      if (meta->live && context_->eviction.Due(*meta, context_->step)) {
        const int64_t key = meta->key;
        candidate_index_->Erase(HashKey(key), key);
        candidates_.Free(id);
      }
    }
    ++cursor_;
  }
}

std::vector<const char*> Shard::Rows() {
  std::vector<const char*> rows;
  rows.reserve(size());
  for (uint32_t id = 0; id < store_.end(); ++id) {
    char* row = store_.Row(id);
    if (context_->identity()) {
      rows.push_back(IdentityRow(static_cast<int64_t>(id) * kNumShards + number_));
    } else if (Meta(row)->live) {
      rows.push_back(row);
    }
  }
  return rows;
}

void Shard::TouchAll() {
  if (!changes_.enabled()) return;
  for (const char* row : Rows()) changes_.Touch(Meta(const_cast<char*>(row)));
}

void Shard::Changed(uint64_t since, std::vector<int64_t>* keys) const {
  const size_t first = keys->size();
  changes_.Collect(since, keys);
  std::sort(keys->begin() + first, keys->end());
  keys->erase(std::unique(keys->begin() + first, keys->end()), keys->end());
}

void Shard::BeginEpoch(uint64_t epoch, uint64_t oldest) {
  if (changes_.enabled()) {
    for (const int64_t key : *changes_.current()) {
      if (context_->identity()) {
        Meta(IdentityRow(key))->dirty = 0;
        continue;
      }
      const uint32_t id = index_->Find(HashKey(key), key);
      if (id != Index::kNone) Meta(store_.Row(id))->dirty = 0;
    }
  }
  changes_.Begin(epoch, oldest);
}

void Shard::StopRecording() {
  changes_.Disable();
  for (uint32_t id = 0; id < store_.end(); ++id) Meta(store_.Row(id))->dirty = 0;
}

void Shard::Import(int64_t key, const RowArrays& one) {
  const int dim = context_->layout.dim;
  const uint64_t hash = HashKey(key);
  char* row = context_->identity() ? IdentityRow(key) : nullptr;
  if (row == nullptr) {
    const uint32_t id = index_->Find(hash, key);
    row = id == Index::kNone ? Insert(hash, key) : store_.Row(id);
    if (context_->eviction.Due(*Meta(row), context_->step)) Fresh(row, key);
    const uint32_t counted = candidate_index_->Erase(hash, key);
    if (counted != Index::kNone) candidates_.Free(counted);
  }
  RowMeta* meta = Meta(row);
  meta->count = one.counts != nullptr ? std::min(*one.counts, kMaxCount) : 1;
  meta->last_step = one.last_steps != nullptr ? *one.last_steps : ClampStep(context_->step);
  meta->last_time = one.last_times != nullptr ? *one.last_times : context_->time;
  if (one.values != nullptr) std::memcpy(Value(row), one.values, sizeof(float) * dim);
  if (one.states != nullptr) {
    std::memcpy(Value(row) + dim, one.states, sizeof(float) * context_->layout.state_width);
  } else {
    context_->rule.InitState(Value(row) + dim, dim);
  }
  changes_.Touch(meta);
}

std::unique_ptr<SlabStore> Shard::Relaid(const RowLayout& layout) {
  auto relaid = std::make_unique<SlabStore>(layout.stride());
  relaid->Reserve(store_.end());
  const size_t kept = sizeof(RowMeta) + sizeof(float) * layout.dim;
  std::vector<uint32_t> unused;
  for (uint32_t id = 0; id < store_.end(); ++id) {
    const uint32_t same = relaid->Allocate();  // ids stay, so the index stays
    const char* from = store_.Row(id);
    if (!Meta(from)->live) {
      if (!context_->identity()) unused.push_back(same);
      continue;
    }
    char* to = relaid->Row(same);
    std::memcpy(to, from, kept);
    context_->rule.InitState(Value(to) + layout.dim, layout.dim);
  }
  for (const uint32_t id : unused) relaid->Free(id);
  return relaid;
}

void Shard::Clear() {
  if (changes_.enabled()) {
    for (const char* row : Rows()) changes_.Deleted(Meta(row)->key);
  }
  stats_.erased += size();
  SlabStore rows(store_.stride());
  SlabStore counted(sizeof(RowMeta));
  if (context_->identity()) {
    // Every key of the vocabulary is still there; it reads its first value again.
    rows.Reserve(store_.end());
    while (rows.end() < store_.end()) rows.Allocate();
  }
  store_.Swap(&rows);
  candidates_.Swap(&counted);
  index_ = std::make_unique<Index>(&store_, kShardBits);
  candidate_index_ = std::make_unique<Index>(&candidates_, kShardBits);
  cursor_ = 0;
}

}  // namespace msrec
