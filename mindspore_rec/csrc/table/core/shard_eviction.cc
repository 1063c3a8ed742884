// SPDX-License-Identifier: Apache-2.0
//
// Shard: the eviction of rows, and the order of eviction.
#include <algorithm>

#include "table/core/row_rules.h"
#include "table/core/shard.h"

namespace msrec {

void Shard::Drop(uint32_t id, EvictionReason reason) {
  const RowMeta* meta = Meta(store_.Row(id));
  const int64_t key = meta->key;
  // First do all operations that can fail, before the shard changes.
  changes_.Reserve(1);
  evictions_.Reserve(1);
  if (context_->device != nullptr) context_->device->Forget(number_, key);
  index_->Erase(IndexHash(key), key);
  digests_.Remove(id);
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
        const EvictionReason reason = ReasonToEvict(*context_, row, norms);
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

void Shard::EvictionCandidates(size_t n, VictimCandidates* candidates) {
  const size_t wanted = std::min(size(), kSampled * n + 64);
  candidates->clear();
  candidates->reserve(wanted);
  for (size_t looked = 0; candidates->size() < wanted && looked < store_.end(); ++looked) {
    if (sample_ >= store_.end()) sample_ = 0;
    const uint32_t id = sample_++;
    const char* row = store_.Row(id);
    if (Meta(row)->live) {
      candidates->push_back({EvictionPriority(*context_, row), Meta(row)->last_step, id, number_});
    }
  }
  TrimCandidates(n, candidates);
}

void Shard::TrimCandidates(size_t n, VictimCandidates* candidates) {
  const size_t kept = 2 * n + 64;
  if (candidates->size() <= kept) return;
  std::nth_element(candidates->begin(), candidates->begin() + kept, candidates->end());
  candidates->resize(kept);
}

void Shard::StampTime() {
  for (uint32_t id = 0; id < store_.end(); ++id) {
    RowMeta* meta = Meta(store_.Row(id));
    if (meta->live && meta->last_time == 0) meta->last_time = context_->time;
  }
  candidates_.StampTime();
}

}  // namespace msrec
