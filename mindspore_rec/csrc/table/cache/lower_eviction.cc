// SPDX-License-Identifier: Apache-2.0
#include "table/cache/lower_eviction.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace msrec {
namespace {

// Number of rows that the sweep visits in one step: 1/4096 of all rows, but at least kLeastOfSlice
// and at most kMostOfSlice. The sweep of a slice only frees space, because lookups already treat
// rows that are due for eviction as missing.
constexpr size_t kLeastOfSlice = 64;
constexpr size_t kMostOfSlice = 2048;
constexpr size_t kSampled = 8;  // rows that are compared for each row to evict

}  // namespace

void LowerEviction::NoteFailure() noexcept {
  ++failures_;
  tiers_.RestartSweep();
}

size_t LowerEviction::Evict(std::vector<int64_t> keys, const ReasonOf& reason) {
  // If a row moves during a walk over the tiers, the walk may return the row twice. Remove repeated
  // keys, so that no row is counted twice.
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  // The copies of the rows may be outdated, so the rows are read again.
  std::vector<char> rows;
  std::unique_ptr<bool[]> found;
  tiers_.Read(keys, &rows, &found);
  const size_t stride = upper_.context().layout.stride();
  std::vector<int64_t> victims;
  std::vector<std::pair<const char*, EvictionReason>> of;  // each victim's block, and the reason of
                                                           // the eviction
  for (size_t i = 0; i < keys.size(); ++i) {
    char* block = rows.data() + i * stride;
    if (!found[i] || upper_.Holds(keys[i])) continue;
    ReadThrough(upper_.context(), block);
    const EvictionReason each = reason(block);
    if (each == EvictionReason::kNone) continue;
    victims.push_back(keys[i]);
    of.emplace_back(block, each);
  }
  if (victims.empty()) return 0;
  tiers_.fetches().Invalidate(victims);
  upper_.ReserveEvictions(victims);
  tiers_.OnTier([&] { tiers_.Queue().Erase(victims); });
  for (const auto& [block, why] : of) upper_.NoteEvicted(block, why);
  tiers_.AddRows(-static_cast<int64_t>(victims.size()));
  return victims.size();
}

// ---------------------------------------------------------------- rows that are due

bool LowerEviction::EvictNext(size_t rows, bool norms) {
  tiers_.Queue();
  std::vector<int64_t> keys;
  std::vector<char> blocks;
  const size_t stride = upper_.context().layout.stride();
  const ShardContext& context = upper_.context();
  const auto reason = [&](const char* row) { return ReasonToEvict(context, row, norms); };
  size_t looked = 0;
  while (looked < rows) {
    if (!tiers_.Sweep(std::min(rows, LowerTiers::kScanRows), &keys, &blocks)) return true;
    looked += keys.size();
    std::vector<int64_t> victims;
    for (size_t i = 0; i < keys.size(); ++i) {
      char* block = blocks.data() + i * stride;
      ReadThrough(context, block);
      if (reason(block) != EvictionReason::kNone) victims.push_back(keys[i]);
    }
    if (!victims.empty()) Evict(std::move(victims), reason);
  }
  return false;
}

void LowerEviction::EvictAll(bool norms) {
  tiers_.EraseDeparted();
  tiers_.Queue();
  if (tiers_.rows() == 0) return;
  tiers_.DrainIfPossible();
  const WriteBehind::Waiting waiting = tiers_.Queue().waiting();
  tiers_.RestartSweep();
  while (!EvictNext(LowerTiers::kScanRows, norms)) {
  }
  std::vector<int64_t> keys;
  for (const auto& [key, row] : waiting.rows) {
    if (row != nullptr) keys.push_back(key);
  }
  if (keys.empty()) return;
  Evict(std::move(keys),
        [&](const char* row) { return ReasonToEvict(upper_.context(), row, norms); });
}

void LowerEviction::Trigger() {
  tiers_.RestartSweep();
  sweeping_ = true;
}

void LowerEviction::EvictTriggered(bool norms) {
  EvictAll(norms);
  sweeping_ = false;
}

void LowerEviction::EvictSlice() {
  const Eviction& eviction = upper_.context().eviction;
  if (tiers_.rows() == 0 || (eviction.on_trigger && !sweeping_)) return;
  const size_t share = static_cast<size_t>(tiers_.rows()) / 4096;
  try {
    const bool ended =
        EvictNext(std::min(std::max(share, kLeastOfSlice), kMostOfSlice), eviction.by_norm());
    sweeping_ = sweeping_ && !ended;
  } catch (const std::runtime_error&) {
    NoteFailure();
  }
}

// ---------------------------------------------------------------- capacity

uint64_t LowerEviction::EvictOverCapacity(uint64_t rows) {
  uint64_t evicted = 0;
  bool whole_walk =
      false;  // true if the walk visits every row: the walk is new, and the queue is empty
  std::vector<int64_t> keys;
  std::vector<char> blocks;
  const size_t stride = upper_.context().layout.stride();
  while (evicted < rows && tiers_.rows() > 0) {
    const size_t wanted = kSampled * static_cast<size_t>(rows - evicted) + 64;
    std::vector<std::pair<double, int64_t>> candidates;  // priority and key
    bool ended = false;
    while (candidates.size() < wanted && !ended) {
      ended = !tiers_.Sweep(LowerTiers::kScanRows, &keys, &blocks);
      for (size_t i = 0; !ended && i < keys.size(); ++i) {
        if (upper_.Holds(keys[i])) continue;
        candidates.emplace_back(EvictionPriority(upper_.context(), blocks.data() + i * stride),
                                keys[i]);
      }
    }
    const size_t most = std::min<size_t>(candidates.size(), rows - evicted);
    if (most != 0) {
      std::nth_element(candidates.begin(), candidates.begin() + (most - 1), candidates.end());
    }
    std::vector<int64_t> victims;
    for (size_t i = 0; i < most; ++i) victims.push_back(candidates[i].second);
    const size_t now =
        Evict(std::move(victims), [](const char*) { return EvictionReason::kCapacity; });
    evicted += now;
    if (now != 0) {
      whole_walk = false;
    } else if (ended) {
      if (whole_walk) break;
      whole_walk = true;
      tiers_.OnTier([&] { tiers_.Queue().Drain(); });
    }
  }
  return evicted;
}

}  // namespace msrec
