// SPDX-License-Identifier: Apache-2.0
#include "table/shard.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace msrec {
namespace {

constexpr size_t kLine = 64;

}  // namespace

Shard::Shard(const ShardContext* context, int number)
    : context_(context),
      number_(number),
      store_(context->layout.stride(), !context->identity()),
      index_(new Index(&store_)),
      candidates_(context, number) {
  if (context_->identity()) {
    // The identity index: key k is row k / 16 of shard k % 16. Memory is mapped, not yet touched.
    const int64_t rows = (context_->vocabulary - number_ + kNumShards - 1) / kNumShards;
    store_.Reserve(static_cast<size_t>(std::max<int64_t>(rows, 0)));
    for (int64_t i = 0; i < rows; ++i) store_.Allocate();
  }
}

size_t Shard::size() const { return context_->identity() ? store_.live() : index_->size(); }

bool Shard::HasRoom(size_t rows) const {
  return (context_->identity() || store_.room() >= rows) && candidates_.HasRoom(rows);
}

void Shard::Reserve(size_t rows) {
  if (!context_->identity()) store_.Reserve(rows);
  if (context_->tiered) pins_.resize(std::max(pins_.size(), size_t{store_.end()} + rows));
  candidates_.Reserve(rows);
}

void Shard::ReserveNotes(size_t keys) {
  changes_.Reserve(2 * keys);  // one that is due goes and comes
  if (context_->eviction.by_age()) evictions_.Reserve(keys);
  if (context_->identity()) return;
  index_->CatchUp();
  candidates_.CatchUp();
  hashes_.resize(std::max(hashes_.size(), keys));
  chunks_.resize(std::max(chunks_.size(), keys));
  places_.resize(std::max(places_.size(), keys));
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
  InitState(row, context_->layout.state_width);
}

void Shard::InitState(char* row, int state_width) const {
  const int dim = context_->layout.dim;
  context_->rule.InitState(Value(row) + dim, dim);
  if (context_->eviction.scored()) Value(row)[dim + state_width - 1] = 0.0f;
}

char* Shard::Insert(uint64_t hash, int64_t key) {
  const uint32_t id = store_.Allocate();
  char* row = store_.Row(id);
  Fresh(row, key);
  try {
    if (context_->tiered) PinOf(id) = {0, 0, context_->pins.released};
    index_->Insert(hash, id);
  } catch (...) {
    store_.Free(id);
    throw;
  }
  ++stats_.inserted;
  inserted_ = id;
  return row;
}

// Counts a key without a row; gives it one when it is admitted.
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
  // A static table has all rows from the start; memory for one is filled when it is first seen.
  if (!Meta(row)->live) Fresh(row, key);
  return row;
}

void Shard::TouchTraining(char* row, uint32_t occurrences) {
  RowMeta* meta = Meta(row);
  if (context_->eviction.order == EvictionOrder::kLfuDecay) {
    float& frequency = Value(row)[context_->score_at()];
    const double idle = static_cast<double>(context_->step - meta->last_step);
    if (idle > 0) {
      frequency *= std::exp2(static_cast<float>(-idle / context_->eviction.half_life_steps));
    }
    frequency += static_cast<float>(occurrences);
  }
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
    for (size_t b = 0; b < ahead; b += kLine) __builtin_prefetch(rows[i] + b);
    __builtin_prefetch(rows[i] + ahead - 1);
    // A training lookup also counts in the row's last float.
    if (scored) __builtin_prefetch(rows[i] + store_.stride() - sizeof(float));
  }
  for (size_t i = 0; i < n; ++i) {
    if (rows[i] != nullptr && Meta(rows[i])->key == keys[i]) continue;
    const uint32_t id = index_->Find(hashes_[i], keys[i]);
    rows[i] = id == Index::kNone ? nullptr : store_.Row(id);
    places_[i] = id;
  }
}

void Shard::FindOrInsert(Batch* batch) {
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
      // Gone for the user already; what comes back is a new key, admission included.
      Erase(key);
      row = Admit(hashes_[i], key, occurrences);
      if (context_->tiered && row != nullptr) Use(inserted_);
    } else if (row == nullptr) {
      row = Admit(hashes_[i], key, occurrences);
      if (context_->tiered && row != nullptr) Use(inserted_);
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
      EvictDue(key);  // its memory is free now, so this insert cannot run out
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
  changes_.Deleted(key);
  Release(id);
  ++stats_.erased;
  return true;
}

// Frees a place whose key is no longer in the index.
void Shard::Release(uint32_t id) noexcept {
  if (context_->tiered && pins_[id].copy) {
    erased_.push_back(Meta(store_.Row(id))->key);  // NoteCopies made room
    --copies_;
  }
  store_.Free(id);
}

void Shard::Drop(uint32_t id, EvictionReason reason) {
  const RowMeta* meta = Meta(store_.Row(id));
  const int64_t key = meta->key;
  // Everything that can fail comes first.
  changes_.Reserve(1);
  evictions_.Reserve(1);
  if (context_->device != nullptr) context_->device->Forget(number_, key);
  index_->Erase(IndexHash(key), key);
  changes_.Deleted(key);
  evictions_.Add({key, context_->step, context_->time, reason});
  Release(id);
  CountEvicted(reason);
}

void Shard::CountEvicted(EvictionReason reason) {
  switch (reason) {
    case EvictionReason::kCapacity:
      ++stats_.evicted_by_capacity;
      break;
    case EvictionReason::kNorm:
      ++stats_.evicted_by_norm;
      break;
    default:
      ++stats_.evicted_by_age;
  }
}

bool Shard::BelowNorm(const char* row) const {
  double squares = 0.0;
  for (int j = 0; j < context_->layout.dim; ++j) {
    const double x = Value(row)[j];
    squares += x * x;
  }
  const double limit = context_->eviction.min_norm;
  return squares < limit * limit;
}

EvictionReason Shard::Reason(const char* row, bool norms) const {
  const EvictionReason due = Age(context_->eviction, context_->horizon, *Meta(row));
  if (due != EvictionReason::kNone || !norms) return due;
  return BelowNorm(row) ? EvictionReason::kNorm : EvictionReason::kNone;
}

bool Shard::EvictSlice(size_t rows, bool norms) {
  const size_t total = places();
  bool ended = total == 0;
  if (context_->identity()) return true;
  for (size_t looked = 0; looked < std::min(rows, total); ++looked) {
    if (cursor_ >= total) cursor_ = 0;
    if (cursor_ < store_.end()) {
      const auto id = static_cast<uint32_t>(cursor_);
      const char* row = store_.Row(id);
      if (Meta(row)->live) {
        const EvictionReason reason = Reason(row, norms);
        if (reason != EvictionReason::kNone) Drop(id, reason);
      }
    } else {
      candidates_.Evict(static_cast<uint32_t>(cursor_ - store_.end()));
    }
    if (++cursor_ >= total) ended = true;
  }
  return ended;
}

void Shard::EvictDue(int64_t key) {
  const uint32_t id = context_->identity() ? Index::kNone : index_->Find(IndexHash(key), key);
  if (id == Index::kNone) return;
  const EvictionReason due = Age(context_->eviction, context_->horizon, *Meta(store_.Row(id)));
  if (due != EvictionReason::kNone) Drop(id, due);
}

// The lower, the earlier it goes.
double Shard::Standing(const char* row) const {
  const RowMeta* meta = Meta(row);
  switch (context_->eviction.order) {
    case EvictionOrder::kLru:
      return meta->last_step;
    case EvictionOrder::kLfu:
      return meta->count;
    case EvictionOrder::kLfuDecay: {
      const double idle = static_cast<double>(context_->step - meta->last_step);
      const double frequency = Value(row)[context_->score_at()];
      if (!(frequency > 0.0)) break;
      return std::log2(frequency) - idle / context_->eviction.half_life_steps;
    }
    case EvictionOrder::kScore:
      // An import may bring anything.
      if (std::isnan(Value(row)[context_->score_at()])) break;
      return Value(row)[context_->score_at()];
  }
  return -std::numeric_limits<double>::infinity();
}

void Shard::OfferFirst(size_t n, std::vector<Offer>* offers) {
  const size_t wanted = std::min(size(), kSampled * n + 64);
  offers->clear();
  offers->reserve(wanted);
  for (size_t looked = 0; offers->size() < wanted && looked < store_.end(); ++looked) {
    if (sample_ >= store_.end()) sample_ = 0;
    const uint32_t id = sample_++;
    const char* row = store_.Row(id);
    if (Meta(row)->live) offers->push_back({Standing(row), Meta(row)->last_step, id, number_});
  }
  KeepFirst(n, offers);
}

// The first 2 n + 64: more than a shard's part of n, and few to choose from.
void Shard::KeepFirst(size_t n, std::vector<Offer>* offers) {
  const size_t kept = 2 * n + 64;
  if (offers->size() <= kept) return;
  std::nth_element(offers->begin(), offers->begin() + kept, offers->end());
  offers->resize(kept);
}

void Shard::StampTime() {
  for (uint32_t id = 0; id < store_.end(); ++id) {
    RowMeta* meta = Meta(store_.Row(id));
    if (meta->live && meta->last_time == 0) meta->last_time = context_->time;
  }
  candidates_.StampTime();
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
  for (uint32_t id = 0; id < store_.end(); ++id) {
    char* row = context_->identity() ? IdentityRow(static_cast<int64_t>(id) * kNumShards + number_)
                                     : store_.Row(id);
    if (Meta(row)->live) changes_.Touch(Meta(row));
  }
}

void Shard::Changed(uint64_t since, std::vector<int64_t>* keys) const {
  const size_t first = keys->size();
  changes_.Collect(since, keys);
  std::sort(keys->begin() + first, keys->end());
  keys->erase(std::unique(keys->begin() + first, keys->end()), keys->end());
}

void Shard::BeginEpoch(uint64_t epoch, uint64_t oldest) {
  if (changes_.enabled()) {
    for (size_t i = 0; i < changes_.current()->size(); ++i) {
      const int64_t key = (*changes_.current())[i];
      if (context_->identity()) {
        Meta(IdentityRow(key))->dirty = 0;
        continue;
      }
      const uint32_t id = index_->Find(IndexHash(key), key);
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
  const uint64_t hash = IndexHash(key);
  char* row = context_->identity() ? IdentityRow(key) : nullptr;
  if (row == nullptr) {
    EvictDue(key);
    const uint32_t id = index_->Find(hash, key);
    if (id == Index::kNone) candidates_.Forget(hash, key);
    row = id == Index::kNone ? Insert(hash, key) : store_.Row(id);
  }
  RowMeta* meta = Meta(row);
  meta->count = one.counts != nullptr ? std::min(*one.counts, kMaxCount) : 1;
  meta->last_step = one.last_steps != nullptr ? *one.last_steps : ClampStep(context_->step);
  // 0 is what a table without event time has.
  meta->last_time =
      one.last_times != nullptr && *one.last_times != 0 ? *one.last_times : context_->time;
  if (one.values != nullptr) std::memcpy(Value(row), one.values, sizeof(float) * dim);
  if (one.states != nullptr) {
    std::memcpy(Value(row) + dim, one.states, sizeof(float) * context_->layout.state_width);
  } else {
    InitState(row, context_->layout.state_width);
  }
  changes_.Touch(meta);
}

void Shard::Relay(const char* from, const RowLayout& layout, char* to) const {
  std::memcpy(to, from, sizeof(RowMeta) + sizeof(float) * layout.dim);
  InitState(to, layout.state_width);
  if (context_->eviction.scored()) {
    Value(to)[layout.dim + layout.state_width - 1] = Value(from)[context_->score_at()];
  }
}

std::unique_ptr<SlabStore> Shard::Relaid(const RowLayout& layout) {
  auto relaid = std::make_unique<SlabStore>(layout.stride(), !context_->identity());
  relaid->Reserve(store_.end());
  std::vector<uint32_t> unused;
  for (uint32_t id = 0; id < store_.end(); ++id) {
    const uint32_t same = relaid->Allocate();  // ids stay, so the index stays
    const char* from = store_.Row(id);
    if (!Meta(from)->live) {
      if (!context_->identity()) unused.push_back(same);
      continue;
    }
    Relay(from, layout, relaid->Row(same));
  }
  for (const uint32_t id : unused) relaid->Free(id);
  return relaid;
}

Shard::Empty Shard::Emptied() {
  Empty empty{std::make_unique<SlabStore>(store_.stride(), !context_->identity()), nullptr,
              candidates_.Emptied()};
  if (context_->identity()) {
    // Every key of the vocabulary is still there; it reads its first value again.
    empty.rows->Reserve(store_.end());
    while (empty.rows->end() < store_.end()) empty.rows->Allocate();
  }
  empty.index = std::make_unique<Index>(&store_);
  return empty;
}

void Shard::Clear(Empty empty) {
  for (uint32_t id = 0; changes_.enabled() && id < store_.end(); ++id) {
    if (context_->identity()) {
      changes_.Deleted(static_cast<int64_t>(id) * kNumShards + number_);
    } else if (Meta(store_.Row(id))->live) {
      changes_.Deleted(Meta(store_.Row(id))->key);
    }
  }
  stats_.erased += size();
  store_.Swap(empty.rows.get());
  index_ = std::move(empty.index);
  candidates_.Clear(std::move(empty.candidates));
  pins_.clear();
  erased_.clear();
  copies_ = 0;
  cursor_ = 0;
  sample_ = 0;
}

}  // namespace msrec
