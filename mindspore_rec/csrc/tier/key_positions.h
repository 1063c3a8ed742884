// SPDX-License-Identifier: Apache-2.0
//
// KeyPositions is an exact map from int64 keys to 44-bit positions, with 12 bytes per entry. If
// there are at least a million keys, and few keys were erased, KeyPositions takes at most 16 bytes
// per key. If there are few keys, KeyPositions takes 100 kB.
//
// The constant hash of a key is a bijection, so the hash can replace the key. The hash's top 12
// bits select one of 4096 tables and need not be stored. The hash's lower 52 bits are hashed again
// by a bijection with this process's secrets, and are stored with the position in 12 bytes. A table
// uses open addressing with linear probing, and its entries are in the order of their hashes (Amble
// and Knuth 1974). A search for an entry begins at the entry's home place, which is proportional to
// the entry's hash. Insertions keep the entries sorted by hash. A search for an absent key ends at
// the first hash that is greater than the key's hash. To grow a table, KeyPositions moves the
// table's entries in one sequential pass. A table that is 0.88 full grows by a tenth, so a growing
// table takes 13.6 to 15.4 bytes per key. A table shrinks only when it is less than 0.4 full, so
// after many erasures a table can take 31 bytes per key.
//
// The constant hash chooses a key's part, so a part has the same keys in every process. The order
// of the keys within a part depends on the secret numbers. An attacker who inserts only keys of a
// single part makes this part's table large. A search takes no longer in a large table than in a
// small table, but a large table grows in larger steps.
//
// Not thread safe, but several threads may call const members at the same time.
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
  static constexpr size_t kMostBytesPerKey = 16;  // for at least 10^6 keys, few erased

  static constexpr size_t kAhead = 16;  // calls of Prefetch before the call that reads

  static constexpr uint64_t kNone = (uint64_t{1} << 44) - 1;  // positions are below

  KeyPositions();

  // Returns the position of key, or kNone.
  uint64_t Find(int64_t key) const;

  // Inserts or replaces the position of key. Returns the old position, or kNone. If Put throws
  // std::bad_alloc, nothing has changed.
  uint64_t Put(int64_t key, uint64_t position);

  // Removes key and returns its position, or kNone.
  uint64_t Erase(int64_t key);

  // Prefetches the memory that a call for key will read.
  void Prefetch(int64_t key) const {
    const Place place = PlaceOf(key);
    const Table& table = tables_[place.part];
    if (table.capacity != 0) __builtin_prefetch(&table.entries[Home(table, place.hash)]);
  }

  // Calls fn(key, position) for every key.
  template <typename Fn>
  void ForEach(Fn fn) const {
    for (uint64_t part = 0; part < kParts; ++part) ForEachOf(part, fn);
  }

  // Calls fn(key, position) for every key in part `part`, a number in [0, kParts). A key's part is
  // the same in every process.
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
  // Returns the number of entries that Find reads for key.
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

  // An entry is three 32-bit words, which contain a hash of 52 bits and a position of 44 bits.
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

  // The hash of an entry selects a place in [0, capacity). An entry that finds no free place in [0,
  // capacity) uses a place in [capacity, end).
  struct Table {
    std::unique_ptr<Entry[]> entries;
    uint32_t size = 0;
    uint32_t capacity = 0;
    uint32_t end = 0;
  };

  static uint32_t Home(const Table& table, uint64_t hash) {
    return static_cast<uint32_t>(((hash >> (kHashBits - 32)) * table.capacity) >> 32);
  }
  // Returns the first place whose entry is empty or has a hash not less than `hash`, or table.end
  // if there is no such place.
  static uint32_t LowerBound(const Table& table, uint64_t hash);
  // `tail` is the minimum number of places that follow the last home place; further places are
  // added if necessary.
  void Resize(Table* table, uint32_t capacity, uint32_t tail = 0);

  std::vector<Table> tables_;
  size_t size_ = 0;
  size_t bytes_;
};

}  // namespace msrec
