// SPDX-License-Identifier: Apache-2.0
//
// KeptDigests: digests of rows by key, kept apart from the rows, so that rows that changed by
// themselves are found, wherever they are. Of each digest 32 bits are kept: of 4 billion wrong rows
// one is not found. 15 to 23 bytes a row.
//
// Keys are any. They are gone through in the order of a hash of theirs, a few at a time, while
// others are set and erased in between: each that is there all the time comes once a round, or
// twice where the memory grew meanwhile.
//
// Any thread may call. Throws std::bad_alloc; of the keys of that call some are then set.
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

  // What is kept of a digest; never 0.
  static uint32_t CheckOf(uint64_t digest) {
    const auto top = static_cast<uint32_t>(digest >> 32);
    return top == 0 ? 1 : top;
  }

  void Set(const int64_t* keys, const uint64_t* digests, size_t n);
  void Erase(const int64_t* keys, size_t n);
  void Clear();
  // Make room for so many keys in all.
  void Reserve(size_t rows);
  size_t Size() const;
  size_t Bytes() const;

  // Append at least `least` keys, and what is kept of them, from a place on, 0 at first; fewer
  // where the round ends. Returns the next place; 0 where the round has ended.
  uint64_t Next(uint64_t place, size_t least, std::vector<int64_t>* keys,
                std::vector<uint32_t>* checks) const;

 private:
  static constexpr int kParts = 64;  // by the top bits of the hash
  static constexpr size_t kSlack = 64;

  // Open addressing with linear probing. The home of a key rises with its hash, and nothing wraps
  // around: there are kSlack more places behind the last home.
  struct Part {
    std::vector<int64_t> keys;
    std::vector<uint32_t> checks;  // 0: a free place
    size_t homes = 0;
    size_t size = 0;
  };

  uint64_t HashOf(int64_t key) const { return hasher_.Hash(static_cast<uint64_t>(key)); }
  static size_t PartOf(uint64_t hash) { return hash >> 58; }
  static size_t HomeOf(uint64_t hash, size_t homes) {
    return static_cast<size_t>(static_cast<unsigned __int128>(hash << 6) * homes >> 64);
  }
  // Return the first hash in a part whose home is this.
  static uint64_t FirstHash(size_t part, size_t home, size_t homes);
  // Return the place of a key, or the free one where it belongs, or the end of the places.
  static size_t Find(const Part& part, uint64_t hash, int64_t key);
  // Give a part so many homes, or more.
  void Resize(Part* part, size_t homes) const;
  void SetOne(int64_t key, uint32_t check);
  void EraseOne(int64_t key);

  const BucketHasher hasher_;
  mutable std::mutex mutex_;
  std::array<Part, kParts> parts_;
};

}  // namespace msrec
