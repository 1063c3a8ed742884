// SPDX-License-Identifier: Apache-2.0
//
// KeySet: numbers distinct keys 0, 1, 2, ... in the order of their first appearance. The caller has
// the array of keys, and the KeySet is only an index of this array. A KeySet is scratch memory for
// one shard of a batch or of a step, and is not thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "util/bucket_hash.h"
#include "util/buffer.h"

namespace msrec {

class KeySet {
 public:
  // Empties the set. After Reset, the set has room for `expected` keys, and grows for further keys.
  void Reset(size_t expected) {
    size_t entries = 64;
    while (entries * 3 < expected * 4) entries *= 2;
    std::memset(entries_.Reset(entries), 0, entries * sizeof(uint32_t));
    mask_ = entries - 1;
    size_ = 0;
  }

  // Returns the key's number. A new key gets the next number and is written to keys[number].
  uint32_t FindOrAdd(int64_t key, int64_t* keys) {
    size_t at = Home(key);
    for (;;) {
      const uint32_t held = entries_[at];
      if (held == 0) {
        keys[size_] = key;
        entries_[at] = ++size_;
        if (size_ * 4 > (mask_ + 1) * 3) Grow(keys);
        return size_ - 1;
      }
      if (keys[held - 1] == key) return held - 1;
      at = (at + 1) & mask_;
    }
  }

  static constexpr uint32_t kNone = 0xffffffffu;

  // Returns the key's number, or kNone.
  uint32_t Find(int64_t key, const int64_t* keys) const {
    if (size_ == 0) return kNone;
    for (size_t at = Home(key);; at = (at + 1) & mask_) {
      const uint32_t held = entries_[at];
      if (held == 0) return kNone;
      if (keys[held - 1] == key) return held - 1;
    }
  }

  uint32_t size() const { return size_; }
  // Number of keys that fit without growth of the set.
  size_t capacity() const { return (mask_ + 1) / 4 * 3; }
  size_t bytes() const { return entries_.bytes(); }

  // Returns the number of entries that are read if each key is searched once. Only tests call
  // Probes, because Probes searches every key.
  uint64_t Probes(const int64_t* keys) const {
    uint64_t probes = 0;
    for (uint32_t i = 0; i < size_; ++i) {
      size_t at = Home(keys[i]);
      for (++probes; entries_[at] != i + 1; ++probes) at = (at + 1) & mask_;
    }
    return probes;
  }

 private:
  size_t Home(int64_t key) const { return (BatchHash(key) >> 32) & mask_; }

  void Grow(const int64_t* keys) {
    const size_t entries = 2 * (mask_ + 1);
    std::memset(entries_.Reset(entries), 0, entries * sizeof(uint32_t));
    mask_ = entries - 1;
    for (uint32_t i = 0; i < size_; ++i) {
      size_t at = Home(keys[i]);
      while (entries_[at] != 0) at = (at + 1) & mask_;
      entries_[at] = i + 1;
    }
  }

  Buffer<uint32_t> entries_;  // 0: free, else number + 1
  size_t mask_ = 0;
  uint32_t size_ = 0;
};

}  // namespace msrec
