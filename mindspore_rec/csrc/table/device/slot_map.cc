// SPDX-License-Identifier: Apache-2.0
#include "table/device/slot_map.h"

#include <algorithm>
#include <functional>

namespace msrec {
namespace {

// Number of candidates that are collected in one pass over all slots. The more candidates a pass
// collects, the fewer passes are necessary.
size_t CandidatesAtOnce(size_t slots) { return std::max<size_t>(1024, slots / 8); }

}  // namespace

SlotMap::SlotMap(uint32_t slots, bool lfu) : lfu_(lfu) {
  size_t entries = 64;
  while (entries < size_t{slots} * 2) entries *= 2;
  index_.assign(entries, 0);
  mask_ = entries - 1;
  keys_.assign(slots, 0);
  stamps_.assign(slots, 0);
  if (lfu) frequencies_.assign(slots, 0);
  used_.assign(slots, 0);
  free_.reserve(slots);
  freed_pinned_.reserve(slots);
  heap_.reserve(slots);
  waiting_.reserve(slots);
  Clear();
}

void SlotMap::Clear() {
  std::fill(index_.begin(), index_.end(), 0);
  std::fill(used_.begin(), used_.end(), 0);
  std::fill(stamps_.begin(), stamps_.end(), 0);
  free_.resize(keys_.size());
  for (size_t i = 0; i < free_.size(); ++i) free_[i] = static_cast<uint32_t>(free_.size() - 1 - i);
  freed_pinned_.clear();
  ForgetCandidates();
  size_ = 0;
  pinned_ = 0;
}

uint32_t SlotMap::Find(int64_t key) const {
  size_t at = Home(key);
  for (;;) {
    const uint32_t held = index_[at];
    if (held == 0) return kNone;
    if (keys_[held - 1] == key) return held - 1;
    at = (at + 1) & mask_;
  }
}

bool SlotMap::Use(uint32_t slot, uint32_t frequency) {
  if (lfu_) frequencies_[slot] = std::max(frequencies_[slot], frequency);
  if (stamps_[slot] == clock_) return false;
  stamps_[slot] = clock_;
  ++pinned_;
  return true;
}

uint32_t SlotMap::Take(int64_t key, uint32_t frequency) {
  uint32_t slot;
  if (!free_.empty()) {
    slot = free_.back();
    free_.pop_back();
  } else {
    slot = Victim();
    if (slot == kNone) return kNone;
    EraseFromIndex(slot);
    --size_;
  }
  size_t at = Home(key);
  while (index_[at] != 0) at = (at + 1) & mask_;
  index_[at] = slot + 1;
  keys_[slot] = key;
  used_[slot] = 1;
  ++size_;
  stamps_[slot] = clock_;
  if (lfu_) frequencies_[slot] = frequency;
  ++pinned_;
  AddCandidate(slot);
  return slot;
}

void SlotMap::Free(uint32_t slot) {
  EraseFromIndex(slot);
  used_[slot] = 0;
  --size_;
  // A lookup of this step may still read a pinned slot, so the slot is reused only in the next
  // step.
  (IsPinned(slot) ? freed_pinned_ : free_).push_back(slot);
}

void SlotMap::NextStep() {
  ++clock_;
  pinned_ = 0;
  free_.insert(free_.end(), freed_pinned_.begin(), freed_pinned_.end());
  freed_pinned_.clear();
  for (size_t i = 0; i < waiting_.size(); ++i) {  // none is pinned now
    if (used_[waiting_[i]]) AddCandidate(waiting_[i]);
  }
  waiting_.clear();
}

// Forget all candidates, so that the next victim is searched among all slots.
void SlotMap::ForgetCandidates() {
  heap_.clear();
  waiting_.clear();
  bound_ = {0, 0};
}

// Adds the slot to the candidates if the slot may have the lowest priority.
void SlotMap::AddCandidate(uint32_t slot) {
  const VictimCandidate candidate{Priority(slot), slot};
  if (bound_ < candidate) return;
  if ((IsPinned(slot) ? waiting_.size() : heap_.size()) == keys_.size()) {
    return ForgetCandidates();  // no room: many of these are out of date
  }
  if (IsPinned(slot)) {
    waiting_.push_back(slot);
    return;
  }
  heap_.push_back(candidate);
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

uint32_t SlotMap::Victim() {
  do {
    while (!heap_.empty()) {
      const VictimCandidate candidate = heap_.front();
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      heap_.pop_back();
      if (!used_[candidate.slot]) continue;
      if (!IsPinned(candidate.slot) && Priority(candidate.slot) == candidate.priority)
        return candidate.slot;
      AddCandidate(candidate.slot);  // used since then
    }
  } while (Refill());
  return kNone;
}

bool SlotMap::Refill() {
  waiting_.clear();
  for (uint32_t slot = 0; slot < keys_.size(); ++slot) {
    if (used_[slot] && !IsPinned(slot)) heap_.push_back({Priority(slot), slot});
  }
  bound_ = {0, 0};
  if (heap_.empty()) return false;
  const size_t kept = std::min(heap_.size(), CandidatesAtOnce(keys_.size()));
  std::nth_element(heap_.begin(), heap_.begin() + (kept - 1), heap_.end());
  heap_.resize(kept);
  bound_ = heap_.back();
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  // With LRU, the pinned slots are the most recently used slots, so no pinned slot is a candidate.
  for (uint32_t slot = 0; lfu_ && slot < keys_.size(); ++slot) {
    if (used_[slot] && IsPinned(slot)) AddCandidate(slot);
  }
  return true;
}

// A search stops at an empty place, so the removed entry must not leave a gap. If the home place of
// a later entry is at or before the gap, this entry is moved back into the gap.
void SlotMap::EraseFromIndex(uint32_t slot) {
  size_t at = Home(keys_[slot]);
  while (index_[at] != slot + 1) at = (at + 1) & mask_;
  size_t next = at;
  for (;;) {
    next = (next + 1) & mask_;
    const uint32_t held = index_[next];
    if (held == 0) break;
    const size_t home = Home(keys_[held - 1]);
    if (((next - home) & mask_) < ((next - at) & mask_)) continue;
    index_[at] = held;
    at = next;
  }
  index_[at] = 0;
}

size_t SlotMap::bytes() const {
  return index_.size() * 4 + keys_.size() * (8 + 4 + 1 + 4 + (lfu_ ? 4 : 0)) +
         heap_.capacity() * sizeof(VictimCandidate) +
         (waiting_.capacity() + freed_pinned_.capacity()) * 4;
}

}  // namespace msrec
