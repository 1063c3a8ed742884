// SPDX-License-Identifier: Apache-2.0
//
// Shard: promotes rows from lower tiers and demotes rows to lower tiers.
#include <algorithm>
#include <cstring>

#include "table/core/row_rules.h"
#include "table/core/shard.h"

namespace msrec {

void Shard::FindInHost(Batch* batch, Hold hold, uint16_t number, std::vector<uint32_t>* missing) {
  Probe(batch);
  const size_t first = batch->begin[number_];
  for (size_t i = 0; i < batch->unique[number_]; ++i) {
    if (batch->row[first + i] == nullptr) {
      missing->push_back(static_cast<uint32_t>(first + i));
    } else if (hold == Hold::kBatch) {
      pins_.HoldAhead(places_[i], number);
    } else if (hold != Hold::kNone) {
      pins_.HoldRow(places_[i], hold);
    }
  }
}

bool Shard::HoldAhead(int64_t key, uint16_t number) {
  const uint32_t id = index_->Find(IndexHash(key), key);
  if (id == Index::kNone) return false;
  pins_.HoldAhead(id, number);
  return true;
}

char* Shard::Promote(const char* block, Hold hold, uint16_t number) {
  const int64_t key = Meta(block)->key;
  const uint64_t hash = IndexHash(key);
  if (index_->Find(hash, key) != Index::kNone) return nullptr;
  pins_.ReserveCopies(1);
  const uint32_t id = store_.Allocate();
  char* row = store_.Row(id);
  std::memcpy(row, block, store_.stride());
  Meta(row)->dirty = 0;  // the copied bit may be from an earlier epoch of the change log
  FillTime(*context_, Meta(row));
  try {
    pins_.BeginPromoted(id, hold, number);
    index_->Insert(hash, id);
  } catch (...) {
    Meta(row)->live = 0;
    store_.Free(id);
    throw;
  }
  if (hold == Hold::kStep || hold == Hold::kCall) pins_.HoldRow(id, hold);
  pins_.AddCopy();
  digests_.Place(id);
  return row;
}

void Shard::DemotionCandidates(size_t n, bool by_count, bool prefetched,
                               VictimCandidates* candidates) {
  // The sample is half as large as for eviction, because a wrong choice costs less: a row that is
  // demoted too early only needs to be promoted again.
  constexpr size_t kSampledDown = kSampled / 2;
  constexpr uint32_t kAhead = 8;
  const Pins pins = context_->pins;
  const uint16_t step = pins.step & 0x7fff;
  const uint16_t call = pins.call & 0x7fff;
  const size_t wanted = std::min(size(), kSampledDown * n + 64);
  const uint32_t end = store_.end();
  candidates->clear();
  candidates->reserve(wanted);
  pins_.Reserve(end);
  for (size_t looked = 0; candidates->size() < wanted && looked < end; ++looked) {
    if (sample_ >= end) sample_ = 0;
    const uint32_t id = sample_++;
    if (id + kAhead < end) __builtin_prefetch(store_.Row(id + kAhead));
    const RowPin pin = pins_.Of(id);
    if (pin.used == step || pin.used == call) continue;
    if (!prefetched && pins.IsAhead(pin.needed)) continue;
    const RowMeta* meta = Meta(store_.Row(id));
    if (!meta->live) continue;
    const double priority = by_count ? meta->count : meta->last_step;
    candidates->push_back({priority, meta->last_step, id, number_});
  }
  TrimCandidates(n, candidates);
}

void Shard::FreeDemoted(uint32_t place) noexcept {
  const int64_t key = Meta(store_.Row(place))->key;
  digests_.Leave(place);
  index_->Erase(IndexHash(key), key);
  pins_.Demote(place);
  store_.Free(place);
}

void Shard::UndoPromote(int64_t key) noexcept { FreeDemoted(index_->Find(IndexHash(key), key)); }

uint32_t Shard::CopyRows(uint32_t place, size_t most, std::vector<int64_t>* keys,
                         std::vector<char>* rows) {
  pins_.ReserveCopies(size() - pins_.copies());
  for (; place < store_.end(); ++place) {
    const char* row = store_.Row(place);
    if (!Meta(row)->live || context_->Due(*Meta(row))) continue;
    if (keys->size() >= most) return place;
    keys->push_back(Meta(row)->key);
    rows->insert(rows->end(), row, row + store_.stride());
    pins_.MarkCopy(place);
  }
  return Index::kNone;
}

void Shard::NoteLowerEviction(const char* block, EvictionReason reason) {
  const int64_t key = Meta(block)->key;
  digests_.RemoveBelow(block);
  changes_.Deleted(key);
  evictions_.Add({key, context_->step, context_->time, reason});
  CountEvicted(reason);
}

}  // namespace msrec
