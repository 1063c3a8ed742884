// SPDX-License-Identifier: Apache-2.0
//
// KeptDigests: digests of rows by key, stored separately from the rows. If a row does not match its
// stored digest, the row has changed without a write, in memory or in a tier. A digest is stored as
// 32 bits, so one in 4 billion damaged rows is not detected. Each row takes 15 to 23 bytes.
//
// Any int64 is a legal key. Repeated calls of Next visit all keys, a few per call, in the order of
// their hashes. Such a series of calls is a round. Keys may be set and erased between two calls. A
// round visits each key once, if the key is present during the whole round. If the memory grows
// during the round, a key may be visited twice.
//
// Any thread may call. A call may throw std::bad_alloc; after the exception, some of the call's
// keys may already be set.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "util/bucket_hash.h"

namespace msrec {

class KeptDigests {
 public:
  KeptDigests();
  KeptDigests(const KeptDigests&) = delete;
  KeptDigests& operator=(const KeptDigests&) = delete;

  // Return the part of a digest that is stored: the upper 32 bits, or 1 if these bits are 0.
  static uint32_t CheckOf(uint64_t digest) {
    const auto top = static_cast<uint32_t>(digest >> 32);
    return top == 0 ? 1 : top;
  }

  void Set(const int64_t* keys, const uint64_t* digests, size_t n);
  void Erase(const int64_t* keys, size_t n);
  void Clear();
  // Reserve memory for a total of `rows` keys.
  void Reserve(size_t rows);
  size_t Size() const;
  size_t Bytes() const;

  // Read the index, beginning at `place`. Append at least `least` keys to `keys`, and append the
  // stored part of each key's digest to `checks`. If `place` is 0, Next begins a new round. At the
  // end of a round, Next may append fewer than `least` keys. Return the next place, or 0 at the end
  // of the round.
  uint64_t Next(uint64_t place, size_t least, std::vector<int64_t>* keys,
                std::vector<uint32_t>* checks) const;

 private:
  static constexpr int kParts = 64;  // the top bits of the hash select the part
  static constexpr size_t kSlack = 64;

  // The index uses open addressing with linear probing. A key with a larger hash has the same or a
  // higher home. After the last home, probing continues into kSlack extra places, and does not wrap
  // around to the first home.
  struct Part {
    std::vector<int64_t> keys;
    std::vector<uint32_t> checks;  // 0 marks a free place
    size_t homes = 0;
    size_t size = 0;
  };

  uint64_t HashOf(int64_t key) const { return hasher_.Hash(static_cast<uint64_t>(key)); }
  static size_t PartOf(uint64_t hash) { return hash >> 58; }
  static size_t HomeOf(uint64_t hash, size_t homes) {
    return static_cast<size_t>(static_cast<unsigned __int128>(hash << 6) * homes >> 64);
  }
  // Return the smallest hash whose part is `part` and whose home is `home`.
  static uint64_t FirstHash(size_t part, size_t home, size_t homes);
  // Return the place of a key. If the key is missing, return the free place for the key, or the
  // number of places if no place is free.
  static size_t Find(const Part& part, uint64_t hash, int64_t key);
  // Resize a part to at least `homes` home places.
  void Resize(Part* part, size_t homes) const;
  void SetOne(int64_t key, uint32_t check);
  void EraseOne(int64_t key);

  const BucketHasher hasher_;
  mutable std::mutex mutex_;
  std::array<Part, kParts> parts_;
};

}  // namespace msrec
