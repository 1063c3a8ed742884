// SPDX-License-Identifier: Apache-2.0
//
// KeyPositions: int64 key -> 44-bit position, exact, in 12 bytes an entry and, from a million
// keys on, at most 16 bytes a key; 100 kB for the first ones.
//
// The constant hash of a key is a bijection, so it stands for the key. Its top 12 bits choose one
// of 4096 tables and need not be stored; the other 52, hashed once more with this process's secrets
// by a bijection, and the position make 12 bytes. A table is open addressing with linear probing
// whose entries are in the order of their hashes (Amble and Knuth 1974): an entry's home place is
// proportional to its hash, so the order needs no sorting, a search for an absent key ends as soon
// as a greater one is met, and growing is one sequential pass. A table grows by a tenth when it is
// 0.88 full: 13.6 to 15.4 bytes a key.
//
// So which keys are in a part is the same in every process, and a walk over parts does not depend
// on the secrets; within a part the order does. Keys chosen to be in one part make one large table,
// which is searched as fast as any but grows in larger pieces.
//
// Not thread safe; const members may be called by several threads together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "util/bucket_hash.h"
#include "util/hash.h"

namespace msrec {

class KeyPositions {
 public:
  static constexpr size_t kMostBytesPerKey = 16;  // from a million keys on

  static constexpr size_t kAhead = 16;  // calls of Prefetch before the call that reads

  static constexpr uint64_t kNone = (uint64_t{1} << 44) - 1;  // positions are below

  KeyPositions();

  // The position of key, or kNone.
  uint64_t Find(int64_t key) const;

  // Inserts or replaces; returns the position before, or kNone. Throws std::bad_alloc, leaving all
  // as it was.
  uint64_t Put(int64_t key, uint64_t position);

  // Returns the position that was removed, or kNone.
  uint64_t Erase(int64_t key);

  // Starts loading what a call for key will read.
  void Prefetch(int64_t key) const {
    const Place place = PlaceOf(key);
    const Table& table = tables_[place.part];
    if (table.capacity != 0) __builtin_prefetch(&table.entries[Home(table, place.hash)]);
  }

  // fn(key, position) for every key.
  template <typename Fn>
  void ForEach(Fn fn) const {
    for (uint64_t part = 0; part < kParts; ++part) ForEachOf(part, fn);
  }

  // The same for the keys of the `part`-th of kParts parts. A key's part is always the same, in
  // every process.
  static constexpr uint64_t kParts = uint64_t{1} << 12;
  template <typename Fn>
  void ForEachOf(uint64_t part, Fn fn) const {
    const Table& table = tables_[part];
    for (uint32_t i = 0; i < table.end; ++i) {
      const Entry entry = table.entries[i];
      if (!entry.empty()) fn(KeyAt(part, entry.hash()), entry.position());
    }
  }

  size_t size() const { return size_; }
  size_t bytes() const { return bytes_; }
  // Number of entries that Find looks at for key.
  uint32_t Probes(int64_t key) const;

 private:
  static constexpr int kTableBits = 12;
  static constexpr int kHashBits = 64 - kTableBits;
  static constexpr uint64_t kTables = kParts;
  static_assert(kTables == uint64_t{1} << kTableBits, "a part is a table");
  static constexpr uint64_t kHashMask = (uint64_t{1} << kHashBits) - 1;

  struct Place {
    uint64_t part;
    uint64_t hash;  // of 52 bits
  };
  static Place PlaceOf(int64_t key) {
    const uint64_t constant = HashKey(key);
    return {constant >> kHashBits, process_hashers.tier.Hash52(constant & kHashMask)};
  }
  static int64_t KeyAt(uint64_t part, uint64_t hash) {
    return UnhashKey(part << kHashBits | process_hashers.tier.Unhash52(hash));
  }

  // Three words: hash (52 bits), position (44 bits).
  struct Entry {
    uint32_t low, middle, high;
    Entry() : low(~0u), middle(~0u), high(~0u) {}
    Entry(uint64_t hash, uint64_t position)
        : low(static_cast<uint32_t>(position)),
          middle(static_cast<uint32_t>(position >> 32) | static_cast<uint32_t>(hash << 12)),
          high(static_cast<uint32_t>(hash >> 20)) {}
    uint64_t hash() const { return uint64_t{high} << 20 | middle >> 12; }
    uint64_t position() const { return uint64_t{middle & 0xfff} << 32 | low; }
    bool empty() const { return position() == kNone; }
  };
  static_assert(sizeof(Entry) == 12, "12 bytes an entry");

  // Homes are [0, capacity); entries pushed past the last home go into the places up to `end`.
  struct Table {
    std::unique_ptr<Entry[]> entries;
    uint32_t size = 0;
    uint32_t capacity = 0;
    uint32_t end = 0;
  };

  static uint32_t Home(const Table& table, uint64_t hash) {
    return static_cast<uint32_t>(((hash >> (kHashBits - 32)) * table.capacity) >> 32);
  }
  // The first place whose entry is empty or not smaller; table.end where there is none.
  static uint32_t LowerBound(const Table& table, uint64_t hash);
  // tail: places behind the last home, at least; more are made where they are needed.
  void Resize(Table* table, uint32_t capacity, uint32_t tail = 0);

  std::vector<Table> tables_;
  size_t size_ = 0;
  size_t bytes_;
};

}  // namespace msrec
