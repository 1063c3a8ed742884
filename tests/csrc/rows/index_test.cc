// SPDX-License-Identifier: Apache-2.0
#include "rows/index.h"

#include <gtest/gtest.h>

#include <unordered_map>

#include "rows/row_layout.h"
#include "testing.h"
#include "util/bucket_hash.h"
#include "util/hash.h"

namespace msrec {
namespace {

// An index over rows that hold nothing but their keys, beside the map it must behave like.
class Checked {
 public:
  Checked() : store_(sizeof(RowMeta)), index_(&store_) {}

  void Insert(int64_t key) {
    const uint32_t id = store_.Allocate();
    Meta(store_.Row(id))->key = key;
    Meta(store_.Row(id))->live = 1;
    index_.Insert(IndexHash(key), id);
    ASSERT_TRUE(model_.emplace(key, id).second);
  }
  void Erase(int64_t key) {
    const uint32_t id = index_.Erase(IndexHash(key), key);
    const auto it = model_.find(key);
    ASSERT_EQ(id, it == model_.end() ? Index::kNone : it->second) << key;
    if (it == model_.end()) return;
    store_.Free(id);
    model_.erase(it);
  }
  void Find(int64_t key) const {
    const auto it = model_.find(key);
    ASSERT_EQ(index_.Find(IndexHash(key), key), it == model_.end() ? Index::kNone : it->second)
        << key;
  }
  // The two-stage way must give the row, or leave it to Find; never point at no row at all.
  void FindBatched(int64_t key) const {
    const uint64_t hash = IndexHash(key);
    const uint32_t id = Index::Candidate(index_.Prefetch(hash), hash);
    if (id != Index::kNone) {
      ASSERT_LT(id, store_.end());
      ASSERT_EQ(Meta(store_.Row(id))->live, 1u) << "a candidate is a live row";
    }
  }
  void FindAll() const {
    ASSERT_EQ(index_.size(), model_.size());
    for (const auto& [key, id] : model_) ASSERT_EQ(index_.Find(IndexHash(key), key), id);
  }
  bool Has(int64_t key) const { return model_.count(key) != 0; }
  const Index& index() const { return index_; }
  const std::unordered_map<int64_t, uint32_t>& model() const { return model_; }

 private:
  SlabStore store_;
  Index index_;
  std::unordered_map<int64_t, uint32_t> model_;
};

// Keys for hashes that are chosen, which nobody can do who does not know this process's secrets.
int64_t KeyWithHash(uint64_t hash) {
  return static_cast<int64_t>(process_hashers.index.Unhash(hash));
}

TEST(Index, HashIsABijectionWithAKnownInverse) {
  Rng rng(1);
  for (const int64_t key : EdgeKeys()) EXPECT_EQ(KeyWithHash(IndexHash(key)), key);
  for (int i = 0; i < 1000; ++i) {
    const auto key = static_cast<int64_t>(rng.Bits());
    ASSERT_EQ(KeyWithHash(IndexHash(key)), key);
  }
}

TEST(Index, AnyKeyIsAKey) {
  Checked checked;
  for (const int64_t key : EdgeKeys()) checked.Find(key);
  for (const int64_t key : EdgeKeys()) checked.Insert(key);
  checked.FindAll();
  for (const int64_t key : EdgeKeys()) checked.Erase(key);
  for (const int64_t key : EdgeKeys()) checked.Erase(key);
  EXPECT_EQ(checked.index().size(), 0u);
}

TEST(Index, BehavesLikeAMapOverMillionsOfOperations) {
  Checked checked;
  Rng rng(2);
  const size_t ops = 2500000 / kFewer;
  for (size_t op = 0; op < ops; ++op) {
    // Grows, shrinks, grows: by phases of inserting and erasing.
    const bool growing = op / (ops / 5) % 2 == 0;
    const int64_t key = rng.Key(600000);
    switch (rng.Below(4)) {
      case 0:
        ASSERT_NO_FATAL_FAILURE(checked.Find(key));
        break;
      case 1:
        ASSERT_NO_FATAL_FAILURE(checked.FindBatched(key));
        break;
      default:
        if (growing && !checked.Has(key)) {
          ASSERT_NO_FATAL_FAILURE(checked.Insert(key));
        } else if (!growing) {
          ASSERT_NO_FATAL_FAILURE(checked.Erase(key));
        }
    }
  }
  checked.FindAll();
}

TEST(Index, NoInsertGrowsByMoreThanOneSegment) {
  Checked checked;
  size_t most_entries = 0;
  size_t entries = checked.index().entries();
  for (int64_t key = 0; key < 1000000 / static_cast<int64_t>(kFewer); ++key) {
    checked.Insert(key);
    // Slots come when a segment of at most 96 chunks of 12 is rehashed, and only then.
    most_entries = std::max(most_entries, checked.index().entries() - entries);
    entries = checked.index().entries();
  }
  EXPECT_LE(most_entries, 96u * 12u);
  checked.FindAll();
}

TEST(Index, TakesTheMemoryItPromises) {
  Checked checked;
  // A chunk of 64 bytes, a directory entry of 16 and a segment record of 24.
  EXPECT_EQ(checked.index().bytes(), 64u + 16u + 24u);
  for (int64_t key = 0; key < 1000000 / static_cast<int64_t>(kFewer); ++key) {
    checked.Insert(key);
    if (key < 20000 || key % 1000 != 0) continue;
    const double bytes = static_cast<double>(checked.index().bytes()) / static_cast<double>(key);
    ASSERT_GT(bytes, 6.4) << key;
    // 9.7 for chunks at the lowest load, and a directory entry and a segment record each ~700 keys.
    ASSERT_LT(bytes, 9.8) << key;
  }
}

// A full chunk passes its keys on and counts them; past 255 the counter saturates and only costs
// longer probes. 900 keys of one home chunk fill 75 chunks in a row.
TEST(Index, KeysOfOneHomeChunk) {
  Checked checked;
  Rng rng(3);
  std::vector<int64_t> keys;
  for (uint64_t i = 0; i < 900; ++i) keys.push_back(KeyWithHash((i << 32) | 0xfffffff0u));
  for (int round = 0; round < 4; ++round) {
    for (const int64_t key : keys) ASSERT_NO_FATAL_FAILURE(checked.Insert(key));
    for (int i = 0; i < 2000; ++i) ASSERT_NO_FATAL_FAILURE(checked.Find(rng.Key(1000)));
    checked.FindAll();
    std::shuffle(keys.begin(), keys.end(), std::mt19937_64(round));
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_NO_FATAL_FAILURE(checked.Erase(keys[i]));
      if (i % 100 == 0) checked.FindAll();
    }
    ASSERT_EQ(checked.index().size(), 0u);
  }
}

TEST(Index, CollidingAndOrdinaryKeysTogether) {
  Checked checked;
  Rng rng(4);
  for (size_t op = 0; op < 400000 / kFewer; ++op) {
    // One of eight homes, a few hundred prefixes: long probe runs that come and go.
    const uint64_t hash = rng.Below(700) << 50 | rng.Below(8) << 29 | 0x11;
    const int64_t key = rng.OneIn(2) ? KeyWithHash(hash) : rng.Key(5000);
    if (checked.Has(key) && rng.OneIn(2)) {
      ASSERT_NO_FATAL_FAILURE(checked.Erase(key));
    } else if (!checked.Has(key)) {
      ASSERT_NO_FATAL_FAILURE(checked.Insert(key));
    }
    ASSERT_NO_FATAL_FAILURE(checked.Find(rng.OneIn(2) ? key : rng.Key(5000)));
  }
  checked.FindAll();
}

// Equal control bytes: every candidate is another key.
TEST(Index, KeysOfOneTag) {
  Checked checked;
  for (uint64_t i = 0; i < 20000; ++i) checked.Insert(KeyWithHash(Mix64(i) & ~uint64_t{0xff}));
  for (uint64_t i = 0; i < 40000; ++i) {
    ASSERT_NO_FATAL_FAILURE(checked.Find(KeyWithHash(Mix64(i) & ~uint64_t{0xff})));
  }
}

// Keys made to share every bit the directory is indexed by must not blow it up.
TEST(Index, KeysOfOnePrefixDoNotCostGigabytes) {
  Checked checked;
  for (uint64_t i = 0; i < 20000; ++i) {
    ASSERT_NO_FATAL_FAILURE(checked.Insert(KeyWithHash(Mix64(i) & 0xffffffffu)));
    ASSERT_LT(checked.index().bytes(), size_t{16} << 20);
  }
  checked.FindAll();
  for (int64_t key = 0; key < 20000; ++key) ASSERT_NO_FATAL_FAILURE(checked.Insert(key * 7919 + 1));
  checked.FindAll();
}

}  // namespace
}  // namespace msrec
