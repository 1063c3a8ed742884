// SPDX-License-Identifier: Apache-2.0
#include "table/core/upper_tier.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "rows/for_shards.h"
#include "table/core/table_core.h"
#include "table/core/victims.h"

namespace msrec {

std::string UpperTier::Where(const std::string& what) const { return core_.Where(what); }

const ShardContext& UpperTier::context() const { return core_.context; }

TableMutex* UpperTier::mutex() const { return &core_.mutex; }

bool UpperTier::closed() const { return core_.closed; }

size_t UpperTier::rows() const { return core_.Rows(); }

// ---------------------------------------------------------------- find and hold

void UpperTier::FindInHost(Batch* batch, Hold hold, std::vector<uint32_t>* missing) {
  ForShards(*batch, [&](int s) {
    if (!batch->made_unique) batch->MakeUnique(s);
    core_.shards[s]->FindInHost(batch, hold, 0, &missing[s]);
  });
}

void UpperTier::FindAhead(Batch* batch, uint16_t number, std::vector<uint32_t>* missing) {
  for (const auto& shard : core_.shards) shard->FindInHost(batch, Hold::kBatch, number, missing);
}

bool UpperTier::Holds(int64_t key) const { return core_.ShardFor(key).Holds(key); }

bool UpperTier::HoldAhead(int64_t key, uint16_t number) {
  return core_.ShardFor(key).HoldAhead(key, number);
}

void UpperTier::ReleaseUpTo(int64_t number) {
  core_.context.pins.ReleaseUpTo(static_cast<uint16_t>(number));
}

// ---------------------------------------------------------------- promote

void UpperTier::Reserve(const Batch& batch, const std::vector<uint32_t>* missing,
                        const PendingRows* pending) {
  for (int s = 0; s < kNumShards; ++s) {
    const size_t before = pending == nullptr ? 0 : pending->keys[s];
    core_.shards[s]->Reserve(before + missing[s].size());
    core_.shards[s]->ReserveNotes(before +
                                  (batch.begin[s + 1] == batch.begin[s] ? 0 : batch.unique[s]));
  }
}

void UpperTier::Promote(Batch* batch, const std::vector<uint32_t>& at,
                        const std::vector<int64_t>& keys, const char* rows, const bool* found,
                        Hold hold, int64_t* promoted) {
  const size_t stride = core_.context.layout.stride();
  std::vector<char> blank;
  size_t j = 0;
  try {
    for (; j < at.size(); ++j) {
      if (!found[j]) continue;
      const char* block = rows + j * stride;
      if (rows == nullptr) {
        blank.resize(stride);
        RowMeta* meta = Meta(blank.data());
        meta->key = keys[j];
        meta->live = 1;
        meta->last_step = ClampStep(core_.context.step);
        meta->last_time = core_.context.time;
        block = blank.data();
      }
      batch->row[at[j]] = core_.ShardFor(keys[j]).Promote(block, hold, 0);
      ++*promoted;
    }
  } catch (...) {
    // If `rows` is null, undo the promotions, because the promoted rows have no values yet.
    while (rows == nullptr && j-- > 0) {
      if (!found[j]) continue;
      core_.ShardFor(keys[j]).UndoPromote(keys[j]);
      --*promoted;
    }
    throw;
  }
}

void UpperTier::PromoteAhead(const std::vector<int64_t>& keys, const std::vector<char>& rows,
                             const std::vector<size_t>& of, uint16_t number, int64_t* promoted) {
  size_t rows_of[kNumShards] = {};
  for (const size_t j : of) ++rows_of[core_.ShardNumber(keys[j])];
  for (int s = 0; s < kNumShards; ++s) core_.shards[s]->Reserve(rows_of[s]);
  const size_t stride = core_.context.layout.stride();
  for (const size_t j : of) {
    const char* row =
        core_.ShardFor(keys[j]).Promote(rows.data() + j * stride, Hold::kBatch, number);
    *promoted += row != nullptr;
  }
}

// ---------------------------------------------------------------- demote

VictimCandidates UpperTier::Victims(size_t rows, bool by_count, bool prefetched) {
  const DeviceRows* const device = core_.device;
  VictimCandidates victims =
      SampleCandidates(core_, rows, [&](Shard* shard, size_t n, VictimCandidates* candidates) {
        shard->DemotionCandidates(n, by_count, prefetched, candidates);
      });
  if (device != nullptr && !device->shared()) {
    // Rows whose newest values are only in device memory stay in host memory.
    victims.erase(std::remove_if(victims.begin(), victims.end(),
                                 [&](const VictimCandidate& each) {
                                   const int64_t key =
                                       Meta(core_.shards[each.shard]->RowAt(each.place))->key;
                                   return device->Find(key) != SlotMap::kNone;
                                 }),
                  victims.end());
  }
  SelectVictims(rows, &victims);
  std::sort(victims.begin(), victims.end(), [](const VictimCandidate& a, const VictimCandidate& b) {
    return std::tie(a.shard, a.place) < std::tie(b.shard, b.place);
  });
  return victims;
}

void UpperTier::CopyOut(const VictimCandidate& victim, std::vector<int64_t>* keys,
                        std::vector<char>* rows) {
  const char* row = core_.shards[victim.shard]->RowAt(victim.place);
  const int64_t key = Meta(row)->key;
  if (core_.device != nullptr) core_.device->WriteBackAndForget(victim.shard, key);
  keys->push_back(key);
  rows->insert(rows->end(), row, row + core_.context.layout.stride());
}

void UpperTier::Free(const VictimCandidate& victim) noexcept {
  core_.shards[victim.shard]->FreeDemoted(victim.place);
}

void UpperTier::CopyAll(size_t most,
                        const std::function<void(std::vector<int64_t>, std::vector<char>)>& write) {
  for (const auto& shard : core_.shards) {
    for (uint32_t place = 0; place != Index::kNone;) {
      std::vector<int64_t> keys;
      std::vector<char> blocks;
      place = shard->CopyRows(place, most, &keys, &blocks);
      write(std::move(keys), std::move(blocks));
    }
  }
}

// ---------------------------------------------------------------- copies in lower tiers

std::vector<int64_t> UpperTier::Departed() const {
  std::vector<int64_t> keys;
  for (const auto& shard : core_.shards) {
    const std::vector<int64_t>& of = shard->pins().departed();
    keys.insert(keys.end(), of.begin(), of.end());
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

void UpperTier::ForgetDeparted() noexcept {
  for (const auto& shard : core_.shards) shard->pins().ForgetDeparted();
}

void UpperTier::ForgetCopies() noexcept {
  for (const auto& shard : core_.shards) shard->pins().ForgetCopies();
}

// ---------------------------------------------------------------- rows removed from lower tiers

void UpperTier::ReserveEvictions(const std::vector<int64_t>& keys) {
  size_t of_shard[kNumShards] = {};
  for (const int64_t key : keys) ++of_shard[core_.ShardNumber(key)];
  for (int s = 0; s < kNumShards; ++s) {
    core_.shards[s]->changes().Reserve(of_shard[s]);
    core_.shards[s]->evictions().Reserve(of_shard[s]);
  }
}

void UpperTier::NoteEvicted(const char* block, EvictionReason reason) {
  core_.ShardFor(Meta(block)->key).NoteLowerEviction(block, reason);
}

bool UpperTier::recording() const { return core_.oldest_mark != 0; }

void UpperTier::ReserveDeleted(const std::vector<int64_t>& keys) {
  core_.ReserveChanges(keys, true);
}

void UpperTier::NoteDeleted(const std::vector<int64_t>& keys) noexcept {
  if (!recording()) return;
  for (int64_t key = 0; core_.context.is_static() && key < core_.config.vocabulary; ++key) {
    if (core_.Owns(key)) core_.ShardFor(key).changes().Deleted(key);
  }
  for (const int64_t key : keys) core_.ShardFor(key).changes().Deleted(key);
}

bool UpperTier::KeepsDigest() const { return core_.KeepsDigest(); }

void UpperTier::DropDigest() noexcept { core_.DropDigest(); }

}  // namespace msrec
