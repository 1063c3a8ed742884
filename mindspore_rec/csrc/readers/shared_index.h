// SPDX-License-Identifier: Apache-2.0
//
// Functions on the buckets that shared_layout.h defines. The buckets map a key to the slot of the
// key's row. Only one thread at a time may change a part of an index. While a thread changes a
// part, any number of threads of any process may read the part. Readers of the part find every key
// except the key that is being changed. If a key's bucket is full, the key goes into the next
// bucket, and the full bucket is marked. An entry never moves.
#pragma once

#include <cstddef>
#include <cstdint>

#include "readers/shared_layout.h"
#include "readers/shared_memory.h"
#include "rows/quantised_row.h"

namespace msrec {

constexpr uint32_t kNoSlot = 0xffffffff;

// One part of an index: pointers to the part's buckets and to the rows, valid in this process.
struct SharedPartView {
  SharedBucket* buckets;
  uint64_t count;
  const char* rows;
  size_t stride;
  uint64_t end;  // all slots in use are below `end`
};

namespace shared_index {

constexpr uint64_t kBytes = 0x0101010101010101ull;
constexpr uint64_t kTops = 0x80 * kBytes;
constexpr uint64_t kPast = uint64_t{1} << 32;  // bit of tags[1]: keys went into a later bucket
constexpr int kOfFirst = 8;                    // number of entries whose tags are in tags[0]

inline int PartOf(uint64_t hash) { return static_cast<int>(hash >> 58); }
inline uint64_t Tag(uint64_t hash) {
  const uint64_t tag = hash >> 16 & 0xff;
  return tag == 0 ? 1 : tag;
}
inline uint64_t Home(uint64_t hash, uint64_t buckets) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(hash << 6) * buckets >> 64);
}

// For each byte of `word` that equals `byte`, set the top bit of the same byte in the result. The
// result must be exact: an empty entry may still contain the slot of an erased row, so a faster
// test that may report false matches cannot be used.
inline uint64_t Matches(uint64_t word, uint64_t byte) {
  const uint64_t x = word ^ kBytes * byte;
  return ~(((x & ~kTops) + ~kTops) | x) & kTops;
}

// Call fn(entry) for each entry with tag `tag` in a bucket, until fn returns true.
template <typename Fn>
bool AnyMatch(const SharedBucket& bucket, uint64_t tag, uint64_t* past, const Fn& fn) {
  const uint64_t second = bucket.tags[1].load(std::memory_order_acquire);
  *past = second & kPast;
  for (uint64_t m = Matches(bucket.tags[0].load(std::memory_order_acquire), tag); m != 0;
       m &= m - 1) {
    if (fn(__builtin_ctzll(m) / 8)) return true;
  }
  for (uint64_t m = Matches(second, tag) & 0xffffffffull; m != 0; m &= m - 1) {
    if (fn(kOfFirst + __builtin_ctzll(m) / 8)) return true;
  }
  return false;
}

struct Place {
  SharedBucket* bucket = nullptr;  // null if the key is missing
  int entry = 0;
};

inline Place Find(const SharedPartView& part, uint64_t hash, int64_t key) {
  if (part.count == 0) return {};
  uint64_t at = Home(hash, part.count);
  for (uint64_t n = 0; n < part.count; ++n) {
    SharedBucket& bucket = part.buckets[at];
    uint64_t past;
    Place found;
    if (AnyMatch(bucket, Tag(hash), &past, [&](int entry) {
          const uint64_t slot = bucket.slots[entry].load(std::memory_order_acquire);
          if (slot >= part.end || KeyOfQuantised(part.rows + slot * part.stride) != key) {
            return false;
          }
          found = {&bucket, entry};
          return true;
        })) {
      return found;
    }
    if (past == 0) return {};
    at = at + 1 == part.count ? 0 : at + 1;
  }
  return {};
}

inline uint32_t SlotAt(const Place& place) {
  return place.bucket->slots[place.entry].load(std::memory_order_acquire);
}

inline void SetSlot(const Place& place, uint32_t slot) {
  place.bucket->slots[place.entry].store(slot, std::memory_order_release);
}

inline void SetTag(const Place& place, uint64_t tag) {
  std::atomic<uint64_t>& word = place.bucket->tags[place.entry < kOfFirst ? 0 : 1];
  const int shift = place.entry % kOfFirst * 8;
  const uint64_t now = word.load(std::memory_order_relaxed);
  word.store((now & ~(uint64_t{0xff} << shift)) | tag << shift, std::memory_order_release);
}

inline void Erase(const Place& place) { SetTag(place, 0); }

// Requires: the key is not in the part. Throws SharedDamaged if no entry is free, because every
// writer leaves a free entry.
inline void Insert(const SharedPartView& part, uint64_t hash, uint32_t slot) {
  uint64_t at = Home(hash, part.count);
  for (uint64_t n = 0; n < part.count; ++n) {
    SharedBucket& bucket = part.buckets[at];
    uint64_t past;
    Place found;
    if (AnyMatch(bucket, 0, &past, [&](int entry) {
          found = {&bucket, entry};
          return true;
        })) {
      SetSlot(found, slot);  // readers ignore a slot without a tag
      SetTag(found, Tag(hash));
      return;
    }
    const uint64_t tags = bucket.tags[1].load(std::memory_order_relaxed);
    bucket.tags[1].store(tags | kPast, std::memory_order_release);
    at = at + 1 == part.count ? 0 : at + 1;
  }
  throw SharedDamaged("the shared memory is damaged: an index is full");
}

// Call fn(slot) for all entries.
template <typename Fn>
void ForEach(const SharedBucket* buckets, uint64_t count, const Fn& fn) {
  for (uint64_t b = 0; b < count; ++b) {
    for (int entry = 0; entry < kBucketEntries; ++entry) {
      const uint64_t tags = buckets[b].tags[entry / kOfFirst].load(std::memory_order_acquire);
      if ((tags >> entry % kOfFirst * 8 & 0xff) == 0) continue;
      fn(buckets[b].slots[entry].load(std::memory_order_acquire));
    }
  }
}

// ---- overlays

// Return the entry of a key. If the key has no entry, return a free entry, whose kind is kNoChange.
// If no entry is free, which happens only in damaged memory, return null.
// Requires: `entries` is a power of two.
inline SharedChange* FindChange(SharedChange* changes, uint64_t entries, uint64_t hash,
                                int64_t key) {
  uint64_t at = hash >> 6 & (entries - 1);
  for (uint64_t n = 0; n < entries; ++n) {
    if (changes[at].kind == kNoChange || changes[at].key == key) return changes + at;
    at = (at + 1) & (entries - 1);
  }
  return nullptr;
}

}  // namespace shared_index
}  // namespace msrec
