// SPDX-License-Identifier: Apache-2.0
#include "tier/key_positions.h"

#include <gtest/gtest.h>

#include <unordered_map>

#include "testing.h"

namespace msrec {
namespace {

TEST(KeyPositions, UnhashIsTheInverseOfHash) {
  Rng rng(1);
  for (const int64_t key : EdgeKeys()) EXPECT_EQ(UnhashKey(HashKey(key)), key);
  for (int i = 0; i < 1000; ++i) {
    const auto key = static_cast<int64_t>(rng.Bits());
    ASSERT_EQ(UnhashKey(HashKey(key)), key);
  }
}

TEST(KeyPositions, BehavesLikeAMap) {
  KeyPositions index;
  std::unordered_map<int64_t, uint64_t> model;
  Rng rng(2);
  const size_t ops = 3000000 / kFewer;
  for (size_t op = 0; op < ops; ++op) {
    const bool growing = op / (ops / 5) % 2 == 0;
    const int64_t key = rng.Key(500000 / kFewer);
    const auto it = model.find(key);
    const uint64_t before = it == model.end() ? KeyPositions::kNone : it->second;
    if (rng.OneIn(3)) {
      ASSERT_EQ(index.Find(key), before);
    } else if (growing || rng.OneIn(8)) {
      const uint64_t position = rng.Bits() % KeyPositions::kNone;
      ASSERT_EQ(index.Put(key, position), before);
      model[key] = position;
    } else {
      ASSERT_EQ(index.Erase(key), before);
      model.erase(key);
    }
  }
  ASSERT_EQ(index.size(), model.size());
  size_t seen = 0;
  index.ForEach([&](int64_t key, uint64_t position) {
    ++seen;
    const auto it = model.find(key);
    ASSERT_NE(it, model.end());
    ASSERT_EQ(it->second, position);
  });
  EXPECT_EQ(seen, model.size());
  for (const auto& [key, position] : model) ASSERT_EQ(index.Find(key), position);
}

// The key of the first table with that hash there.
int64_t KeyOfPlace(uint64_t hash) { return UnhashKey(process_hashers.tier.Unhash52(hash)); }

// Keys of one table, ever nearer to each other: long runs, at the very end of the table too.
TEST(KeyPositions, KeysWhoseHashesAreNeighbours) {
  for (const uint64_t start : {uint64_t{0}, uint64_t{1} << 51, (uint64_t{1} << 52) - 1000}) {
    KeyPositions index;
    for (uint64_t i = 0; i < 1000; ++i) {
      const uint64_t j = i * 1009 % 1000;
      ASSERT_EQ(index.Put(KeyOfPlace(start + j), j), KeyPositions::kNone);
    }
    for (uint64_t i = 0; i < 1000; ++i) ASSERT_EQ(index.Find(KeyOfPlace(start + i)), i);
    for (uint64_t i = 0; i < 1000; i += 2) ASSERT_EQ(index.Erase(KeyOfPlace(start + i)), i);
    for (uint64_t i = 0; i < 1000; ++i) {
      ASSERT_EQ(index.Find(KeyOfPlace(start + i)), i % 2 == 0 ? KeyPositions::kNone : i);
    }
  }
}

TEST(KeyPositions, TakesAtMost16BytesAKey) {
  KeyPositions index;
  const int64_t keys = kFewer == 1 ? 6000000 : 1200000;
  for (int64_t key = 0; key < keys; ++key) {
    index.Put(key, 1);
    if (key < 1000000 || key % 10000 != 0) continue;
    ASSERT_LE(static_cast<double>(index.bytes()) / static_cast<double>(index.size()), 16.0) << key;
  }
}

}  // namespace
}  // namespace msrec
