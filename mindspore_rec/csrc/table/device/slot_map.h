// SPDX-License-Identifier: Apache-2.0
//
// SlotMap: maps keys to slots of a device cache. If no slot is free, a new key takes the slot of
// another key, the victim. With LRU, the victim is the least recently used key. With LFU, the
// victim is the least often used key. If several keys are used equally often, the victim is the
// least recently used key among these keys. Keys that were used since the last call of NextStep are
// pinned: no other key can replace a pinned key.
//
// Not thread safe, except for parallel calls of Find.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "util/bucket_hash.h"

namespace msrec {

class SlotMap {
 public:
  static constexpr uint32_t kNone = 0xffffffffu;

  // Requires 1 <= slots < 2^31. The constructor allocates all memory, so no later call can fail.
  SlotMap(uint32_t slots, bool lfu);

  // Returns the slot of key, or kNone. If keys were passed to Prefetch before, Find does not wait
  // for memory when it looks up these keys.
  uint32_t Find(int64_t key) const;
  void Prefetch(int64_t key) const { __builtin_prefetch(&index_[Home(key)]); }

  // Marks the key of the slot as used in this step. `frequency` is the key's total number of uses,
  // which must not decrease while the key has a slot. Returns true if the key was not yet used in
  // this step.
  bool Use(uint32_t slot, uint32_t frequency);
  // Assigns a slot to a key that has no slot yet. If no slot is free, removes the first victim and
  // uses its slot. Returns kNone if all slots are pinned.
  uint32_t Take(int64_t key, uint32_t frequency);
  // Removes the key of the slot. If the slot is not pinned, it can be reused at once. If the slot
  // is pinned, it can be reused after the next call of NextStep.
  void Free(uint32_t slot);
  void Clear();
  // Unpins all slots.
  void NextStep();

  uint32_t capacity() const { return static_cast<uint32_t>(keys_.size()); }
  uint32_t size() const { return size_; }
  uint32_t pinned() const { return pinned_; }
  bool IsPinned(uint32_t slot) const { return stamps_[slot] == clock_; }
  int64_t key(uint32_t slot) const { return keys_[slot]; }
  bool used(uint32_t slot) const { return used_[slot]; }
  size_t bytes() const;

 private:
  // A slot in which a new key may replace the present key. A new key takes the candidate slot with
  // the lowest priority.
  struct VictimCandidate {
    uint64_t priority;
    uint32_t slot;
    bool operator<(const VictimCandidate& other) const {
      return std::tie(priority, slot) < std::tie(other.priority, other.slot);
    }
    bool operator>(const VictimCandidate& other) const { return other < *this; }
  };

  size_t Home(int64_t key) const { return (BatchHash(key) >> 32) & mask_; }
  uint64_t Priority(uint32_t slot) const {
    return lfu_ ? uint64_t{frequencies_[slot]} << 32 | stamps_[slot] : stamps_[slot];
  }
  void AddCandidate(uint32_t slot);
  void ForgetCandidates();
  uint32_t Victim();
  bool Refill();
  void EraseFromIndex(uint32_t slot);

  const bool lfu_;
  std::vector<uint32_t> index_;  // 0: free, else slot + 1; linear probing
  size_t mask_ = 0;
  std::vector<int64_t> keys_;
  std::vector<uint32_t> stamps_;       // the clock at the last use
  std::vector<uint32_t> frequencies_;  // with LFU
  std::vector<uint8_t> used_;
  std::vector<uint32_t> free_;
  std::vector<uint32_t> freed_pinned_;
  uint32_t size_ = 0;
  uint32_t pinned_ = 0;  // keys here that are, and freed slots that were
  uint32_t clock_ = 1;

  // A heap of the slots with the lowest priorities. Each entry has the slot's priority at the time
  // when the entry was added. Every key whose priority is at most bound_ is in the heap or in
  // waiting_. The priority of a key never decreases. The heap's top entry is out of date if the
  // priority of the entry's slot has increased since the entry was added. If the priority has not
  // increased, no other slot has a lower priority.
  std::vector<VictimCandidate> heap_;
  VictimCandidate bound_{0, 0};
  std::vector<uint32_t> waiting_;  // pinned: candidates from the next step on
};

}  // namespace msrec
