// SPDX-License-Identifier: Apache-2.0
//
// SlotMap: which key is in which slot of a device cache, and whose slot is taken when a new key
// needs one: that of the least recently (LRU) or least often (LFU, then least recently) used key.
// Keys used since the last NextStep are pinned: their slots are not taken.
//
// Not thread safe, but for Find, which may run beside other calls of Find.
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

  // Requires 1 <= slots < 2^31. All the memory it ever has: nothing after this can fail.
  SlotMap(uint32_t slots, bool lfu);

  // The slot of key, or kNone. Given keys ahead, a loop of these does not wait for memory.
  uint32_t Find(int64_t key) const;
  void Prefetch(int64_t key) const { __builtin_prefetch(&index_[Home(key)]); }

  // Key of the slot was used in this step; `frequency`: how often ever, which must not fall while
  // the key is here. Whether it is the first use in this step.
  bool Use(uint32_t slot, uint32_t frequency);
  // Gives a key that is not here a slot: a free one, or that of the first victim, which is then no
  // longer here. Returns kNone where all slots are pinned.
  uint32_t Take(int64_t key, uint32_t frequency);
  // The key of the slot leaves. Its slot is free, if it is pinned only from the next step on.
  void Free(uint32_t slot);
  void Clear();
  // Unpins all.
  void NextStep();

  uint32_t capacity() const { return static_cast<uint32_t>(keys_.size()); }
  uint32_t size() const { return size_; }
  uint32_t pinned() const { return pinned_; }
  bool IsPinned(uint32_t slot) const { return stamps_[slot] == clock_; }
  int64_t key(uint32_t slot) const { return keys_[slot]; }
  bool used(uint32_t slot) const { return used_[slot]; }
  size_t bytes() const;

 private:
  // A slot that may be taken; the lower, the earlier.
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

  // A heap of the slots with the lowest priorities as they were: every key whose priority is not
  // above bound_ is in the heap or in waiting_. Since a key's priority only rises, one at the top
  // whose priority is still the same is the lowest of all.
  std::vector<VictimCandidate> heap_;
  VictimCandidate bound_{0, 0};
  std::vector<uint32_t> waiting_;  // pinned: candidates from the next step on
};

}  // namespace msrec
