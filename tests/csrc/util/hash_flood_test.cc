// SPDX-License-Identifier: Apache-2.0
//
// Keys chosen to share buckets: whoever knows the constant hash, which files and other processes
// rely on, must not make a search long. What is counted are places looked at, not time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "rows/batch.h"
#include "rows/index.h"
#include "rows/row_layout.h"
#include "rows/slab_store.h"
#include "testing.h"
#include "tier/key_positions.h"
#include "util/bucket_hash.h"
#include "util/hash.h"
#include "util/key_set.h"

namespace msrec {
namespace {

constexpr uint64_t kShard = uint64_t{5} << 60;

// Keys whose constant hashes share the shard and the bits that a set of 2^17 slots or an index
// would look at.
std::vector<int64_t> Chosen(size_t n, int same_bit, int same_bits) {
  std::vector<int64_t> keys;
  const uint64_t mask = ((uint64_t{1} << same_bits) - 1) << same_bit;
  for (uint64_t i = 0; keys.size() < n; ++i) {
    // Counts through the bits that are free.
    uint64_t free = 0, left = i;
    for (int bit = 0; bit < 60; ++bit) {
      if ((mask >> bit & 1) != 0) continue;
      free |= (left & 1) << bit;
      left >>= 1;
    }
    keys.push_back(UnhashKey(kShard | free));
  }
  return keys;
}

// Sets of keys that some hash or other is bad at, all of them known to whoever sends them.
std::map<std::string, std::vector<int64_t>> Attacks(size_t n) {
  std::map<std::string, std::vector<int64_t>> attacks;
  attacks["one home in a set"] = Chosen(n, 20, 27);
  attacks["one home in an index"] = Chosen(n, 8, 24);
  attacks["one tag"] = Chosen(n, 0, 8);
  attacks["one prefix"] = Chosen(n, 32, 28);
  attacks["one part of a tier's index"] = Chosen(n, 48, 12);
  attacks["neighbours in a tier's index"].resize(n);
  for (size_t i = 0; i < n; ++i) {
    attacks["neighbours in a tier's index"][i] = UnhashKey(kShard | (i << 4));
  }
  for (const int shift : {0, 3, 8, 16, 31, 32, 33, 40, 44, 47}) {
    std::vector<int64_t>& keys = attacks["multiples of 2^" + std::to_string(shift)];
    for (uint64_t i = 0; i < n; ++i) keys.push_back(static_cast<int64_t>(i << shift));
  }
  for (const uint64_t stride : {uint64_t{0x100000001}, uint64_t{0x9e3779b97f4a7c15},
                                uint64_t{107897}, uint64_t{218971}, uint64_t{0x0101010101010101}}) {
    std::vector<int64_t>& keys = attacks["multiples of " + std::to_string(stride)];
    for (uint64_t i = 0; i < n; ++i) keys.push_back(static_cast<int64_t>(i * stride));
  }
  for (uint64_t i = 0; i < n; ++i) {
    const auto swapped = static_cast<int64_t>(__builtin_bswap64(i));
    attacks["bytes reversed"].push_back(swapped);
    attacks["negative"].push_back(-1 - static_cast<int64_t>(i));
    attacks["two blocks"].push_back(static_cast<int64_t>((i & 1) << 63 | i >> 1));
  }
  return attacks;
}

constexpr size_t kKeys = 40000;

// A set is at most three quarters full: 2.5 places a search by linear probing of random places.
TEST(HashFlood, DistinctKeysOfABatch) {
  for (const auto& [name, chosen] : Attacks(kKeys)) {
    KeySet set;
    set.Reset(chosen.size() / 2);
    std::vector<int64_t> keys(chosen.size());
    for (const int64_t key : chosen) set.FindOrAdd(key, keys.data());
    ASSERT_EQ(set.size(), chosen.size()) << name;
    EXPECT_LT(static_cast<double>(set.Probes(keys.data())) / kKeys, 5.0) << name;
  }
}

TEST(HashFlood, InsertionIntoAnIndex) {
  for (const auto& [name, keys] : Attacks(kKeys)) {
    SlabStore rows(sizeof(RowMeta));
    Index index(&rows);
    uint64_t probes = 0;
    for (const int64_t key : keys) {
      probes += index.Probes(IndexHash(key), key);  // those that inserting it looks at
      const uint32_t id = rows.Allocate();
      Meta(rows.Row(id))->key = key;
      Meta(rows.Row(id))->live = 1;
      index.Insert(IndexHash(key), id);
    }
    EXPECT_LT(static_cast<double>(probes) / kKeys, 1.5) << name;
    // An index of about 64 bytes for ten keys.
    EXPECT_LT(static_cast<double>(index.bytes()) / kKeys, 12.0) << name;
  }
}

TEST(HashFlood, IndexOfATier) {
  for (const auto& [name, keys] : Attacks(kKeys)) {
    KeyPositions index;
    for (size_t i = 0; i < keys.size(); ++i) index.Put(keys[i], i);
    uint64_t probes = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(index.Find(keys[i]), i) << name;
      probes += index.Probes(keys[i]);
    }
    // Between 0.80 and 0.88 full: up to 4.7 by linear probing of random places.
    EXPECT_LT(static_cast<double>(probes) / kKeys, 8.0) << name;
  }
}

// Whatever the secrets are.
TEST(HashFlood, NoSeedIsBadAtIt) {
  constexpr size_t n = 20000;
  constexpr int kBits = 15;  // of the slots
  const auto attacks = Attacks(n);
  const auto most = [&](const std::function<uint64_t(uint64_t)>& slot_of) {
    double worst = 0.0;
    for (const auto& [name, keys] : attacks) {
      std::vector<bool> taken(size_t{1} << kBits);
      uint64_t probes = 0;
      for (const int64_t key : keys) {
        uint64_t at = slot_of(static_cast<uint64_t>(key));
        for (++probes; taken[at]; ++probes) at = (at + 1) & (taken.size() - 1);
        taken[at] = true;
      }
      worst = std::max(worst, static_cast<double>(probes) / n);
    }
    return worst;
  };
  for (uint64_t seed = 0; seed < 60 / kFewer; ++seed) {
    const BucketHasher hasher(seed);
    // The bits that a directory, a set and a chunk's place are chosen by.
    for (const int shift : {64 - kBits, 32, 32 - kBits}) {
      const double probes = most(
          [&](uint64_t key) { return hasher.Hash(key) >> shift & ((uint64_t{1} << kBits) - 1); });
      EXPECT_LT(probes, 3.0) << seed << ", bits from " << shift << " on";
    }
    const double probes = most([&](uint64_t key) {
      return hasher.Hash52(HashKey(static_cast<int64_t>(key)) & BucketHasher::kMask52) >>
             (52 - kBits);
    });
    EXPECT_LT(probes, 3.0) << seed;
  }
}

TEST(HashFlood, HashesAreBijections) {
  Rng rng(7);
  for (int i = 0; i < 1000; ++i) {
    const BucketHasher hasher(rng.Bits());
    const uint64_t word = rng.Bits();
    ASSERT_EQ(hasher.Unhash(hasher.Hash(word)), word);
    ASSERT_EQ(hasher.Hash(hasher.Unhash(word)), word);
    const uint64_t narrow = word & BucketHasher::kMask52;
    ASSERT_EQ(hasher.Unhash52(hasher.Hash52(narrow)), narrow);
    ASSERT_LE(hasher.Hash52(narrow), BucketHasher::kMask52);
  }
}

}  // namespace
}  // namespace msrec
