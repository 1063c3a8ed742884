// SPDX-License-Identifier: Apache-2.0
//
// SharedTableChange: a change of one table that is prepared but not published yet
// (shared_writer.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "policy/eviction.h"
#include "readers/shared_index.h"
#include "readers/shared_layout.h"

namespace msrec {

constexpr uint64_t kFullest = 85;  // percentage of used entries at which a part grows

inline uint64_t RoomOf(uint64_t buckets) { return buckets * kBucketEntries * kFullest / 100; }
inline uint64_t BucketsFor(uint64_t rows) {
  return (rows * 100 + kBucketEntries * kFullest - 1) / (kBucketEntries * kFullest) + 1;
}

struct SharedTableChange {
  struct Entry {
    int64_t key;
    uint32_t slot;
    uint32_t kind;  // SharedChangeKind
  };

  // The changed keys, without duplicates.
  class Staged {
   public:
    const std::vector<Entry>& entries() const { return entries_; }
    // Number of places in the hash table, a power of two. At least a third of the places are free.
    uint64_t places() const { return places_.size(); }

    // Reserve memory for n further keys. If Reserve throws std::bad_alloc, nothing has changed.
    void Reserve(size_t n) {
      entries_.reserve(std::max(entries_.size() + n, entries_.capacity()));
      hashes_.reserve(entries_.capacity());
      size_t places = std::max<size_t>(places_.size(), 16);
      while (places * 2 < (entries_.size() + n) * 3) places *= 2;
      if (places == places_.size()) return;
      std::vector<uint32_t> larger(places, kNoSlot);
      for (size_t i = 0; i < entries_.size(); ++i) {
        *Free(&larger, hashes_[i]) = static_cast<uint32_t>(i);
      }
      places_.swap(larger);
    }
    // Return the entry of a key. If the key has no entry, return a new entry whose kind is
    // kNoChange. Requires room.
    Entry* At(uint64_t hash, int64_t key) {
      size_t at = hash >> 6 & (places_.size() - 1);
      while (places_[at] != kNoSlot) {
        if (entries_[places_[at]].key == key) return &entries_[places_[at]];
        at = (at + 1) & (places_.size() - 1);
      }
      places_[at] = static_cast<uint32_t>(entries_.size());
      entries_.push_back({key, kNoSlot, kNoChange});
      hashes_.push_back(hash);
      return &entries_.back();
    }

   private:
    static uint32_t* Free(std::vector<uint32_t>* places, uint64_t hash) {
      size_t at = hash >> 6 & (places->size() - 1);
      while ((*places)[at] != kNoSlot) at = (at + 1) & (places->size() - 1);
      return &(*places)[at];
    }

    std::vector<Entry> entries_;
    std::vector<uint64_t> hashes_;
    std::vector<uint32_t> places_;
  };

  bool replaces = false;
  Staged staged;  // used if the change does not replace all rows
  std::array<SharedIndexPart, kSharedParts> parts = {};  // used if the change replaces all rows
  std::array<uint64_t, kSharedParts> rows = {};
  Horizon ages_at;
  uint64_t first_time = 0;
};

}  // namespace msrec
