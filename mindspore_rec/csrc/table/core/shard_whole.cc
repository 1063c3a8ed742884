// SPDX-License-Identifier: Apache-2.0
//
// Shard: import of rows, change of the rows' layout, and removal of all rows.
#include <algorithm>
#include <cstring>
#include <utility>

#include "rows/row_values.h"
#include "table/core/row_rules.h"
#include "table/core/shard.h"

namespace msrec {

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

void Shard::Import(int64_t key, const RowArrays& one) {
  const RowLayout& layout = context_->layout;
  const uint64_t hash = IndexHash(key);
  char* row = context_->identity() ? IdentityRow(key) : nullptr;
  if (row == nullptr) {
    EvictDue(key);
    const uint32_t id = index_->Find(hash, key);
    if (id == Index::kNone) candidates_.Forget(hash, key);
    row = id == Index::kNone ? Insert(hash, key) : store_.Row(id);
  }
  Touch(row);
  RowMeta* meta = Meta(row);
  meta->count = one.counts != nullptr ? std::min(*one.counts, kMaxCount) : 1;
  meta->last_step = one.last_steps != nullptr ? *one.last_steps : ClampStep(context_->step);
  // In a row from a table without event time, the time is 0.
  meta->last_time =
      one.last_times != nullptr && *one.last_times != 0 ? *one.last_times : context_->time;
  if (one.values != nullptr) WriteValue(layout, one.values, row);
  if (one.states != nullptr) {
    WriteState(layout, one.states, row);
  } else {
    WriteFreshState(*context_, layout, row);
  }
}

std::unique_ptr<SlabStore> Shard::Relaid(const RowLayout& layout) {
  auto relaid = std::make_unique<SlabStore>(layout.stride(), !context_->identity());
  relaid->Reserve(store_.end());
  std::vector<uint32_t> unused;
  for (uint32_t id = 0; id < store_.end(); ++id) {
    const uint32_t same = relaid->Allocate();  // row ids stay the same, so the index stays valid
    const char* from = store_.Row(id);
    if (!Meta(from)->live) {
      if (!context_->identity()) unused.push_back(same);
      continue;
    }
    Relay(*context_, from, layout, relaid->Row(same));
  }
  for (const uint32_t id : unused) relaid->Free(id);
  return relaid;
}

void Shard::Adopt(SlabStore* relaid) {
  store_.Swap(relaid);
  if (!changes_.enabled()) return;
  for (uint32_t id = 0; id < store_.end(); ++id) {
    char* row = context_->identity() ? IdentityRow(static_cast<int64_t>(id) * kNumShards + number_)
                                     : store_.Row(id);
    if (Meta(row)->live) Touch(row);
  }
}

Shard::Empty Shard::Emptied() {
  Empty empty{std::make_unique<SlabStore>(store_.stride(), !context_->identity()), nullptr,
              candidates_.Emptied()};
  if (context_->identity()) {
    // In a table with a vocabulary, every key keeps a row, which gets the key's first value again.
    empty.rows->Reserve(store_.end());
    while (empty.rows->end() < store_.end()) empty.rows->Allocate();
  }
  empty.index = std::make_unique<Index>(&store_);
  return empty;
}

void Shard::Clear(Empty empty, uint64_t below) {
  for (uint32_t id = 0; changes_.enabled() && id < store_.end(); ++id) {
    if (context_->identity()) {
      changes_.Deleted(static_cast<int64_t>(id) * kNumShards + number_);
    } else if (Meta(store_.Row(id))->live) {
      changes_.Deleted(Meta(store_.Row(id))->key);
    }
  }
  stats_.erased += size() + below;
  store_.Swap(empty.rows.get());
  index_ = std::move(empty.index);
  candidates_.Clear(std::move(empty.candidates));
  pins_.Clear();
  cursor_ = 0;
  sample_ = 0;
  digests_.Clear();
}

}  // namespace msrec
