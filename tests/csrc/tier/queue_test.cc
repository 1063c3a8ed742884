// SPDX-License-Identifier: Apache-2.0
//
// WriteBehind and TierChain against a map, over tiers that fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "map_tier.h"
#include "testing.h"
#include "tier/tier_chain.h"
#include "tier/write_behind.h"
#include "tier_testing.h"

namespace msrec {
namespace {

constexpr size_t kRowBytes = 24;
constexpr uint64_t kDistinct = 200;

using Model = std::map<int64_t, uint64_t>;  // key -> version

std::vector<int64_t> DistinctKeys(Rng* rng, size_t most) {
  const auto drawn = rng->Keys(1 + rng->Below(most), kDistinct);
  const std::set<int64_t> keys(drawn.begin(), drawn.end());
  return {keys.begin(), keys.end()};
}

std::vector<char> Rows(const std::vector<int64_t>& keys, uint64_t version) {
  std::string rows;
  for (const int64_t key : keys) rows += RowOf(key, version, kRowBytes);
  return {rows.begin(), rows.end()};
}

std::vector<int64_t> AllKeys() {
  std::vector<int64_t> keys;
  for (uint64_t k = 0; k < kDistinct; ++k) {
    keys.push_back(k < EdgeKeys().size() ? EdgeKeys()[k]
                                         : static_cast<int64_t>(k * 0x9e3779b97f4a7c15ULL));
  }
  return keys;
}

// Read and Contains of either class say what the model says.
template <typename T>
void ExpectModel(T* rows, const Model& model, const std::vector<int64_t>& keys) {
  std::vector<char> read(keys.size() * kRowBytes);
  std::unique_ptr<bool[]> found(new bool[keys.size()]), there(new bool[keys.size()]);
  rows->Read(keys.data(), keys.size(), read.data(), found.get());
  rows->Contains(keys.data(), keys.size(), there.get());
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto it = model.find(keys[i]);
    ASSERT_EQ(found[i], it != model.end()) << keys[i];
    ASSERT_EQ(there[i], found[i]);
    if (!found[i]) continue;
    const char* row = read.data() + i * kRowBytes;
    ASSERT_EQ(std::string(row, kRowBytes), RowOf(keys[i], it->second, kRowBytes));
  }
}

// Calls fn until it does not throw; how often it threw.
template <typename Fn>
int Insist(Fn fn) {
  for (int failures = 0;; ++failures) {
    try {
      fn();
      return failures;
    } catch (const std::exception&) {
    }
  }
}

TEST(TierQueue, IsAMapOverATierThatFails) {
  for (uint64_t seed = 0; seed < 20 / kFewer + 2; ++seed) {
    Rng rng(seed);
    const auto tier = std::make_shared<MapTier>(kRowBytes);
    std::atomic<uint64_t> chance{seed + 1};
    const uint64_t one_in = 2 + seed % 5;
    tier->FailWith([&](const char* call) {
      if (std::string(call) == "read") return false;
      return HashKey(static_cast<int64_t>(++chance)) % one_in == 0;
    });
    // Little room: writers wait, and are told of failures.
    WriteBehind queue(tier, seed % 2 == 0 ? 2000 : 100000);
    Model model;
    int failures = 0;
    for (uint64_t version = 1; version <= 300 / kFewer + 50; ++version) {
      const auto keys = DistinctKeys(&rng, 60);
      switch (rng.Below(8)) {
        case 0:
          failures += Insist([&] { queue.Erase(keys); });
          for (const int64_t key : keys) model.erase(key);
          break;
        case 1:
          failures += Insist([&] { queue.Drain(); });
          ASSERT_EQ(queue.waiting_rows(), 0u);
          ASSERT_EQ(tier->size(), model.size());
          break;
        case 2:
          failures += Insist([&] { queue.Flush(); });
          break;
        case 3:
          if (!rng.OneIn(4)) break;
          // It is seen at once, whatever the tier does.
          failures += Insist([&] { queue.Clear(); });
          model.clear();
          break;
        default:
          failures += Insist([&] { queue.Write(keys, Rows(keys, version)); });
          for (const int64_t key : keys) model[key] = version;
      }
      ExpectModel(&queue, model, rng.OneIn(10) ? AllKeys() : DistinctKeys(&rng, 30));
      if (HasFatalFailure()) return;
    }
    EXPECT_GT(failures, 0);
    tier->FailWith(nullptr);
    queue.Flush();
    ExpectModel(tier.get(), model, AllKeys());
  }
}

// The tier is well again before the one who waits has heard that it failed.
TEST(TierQueue, AFailureThatIsOverIsNoErrorOfThoseWhoWait) {
  for (int round = 0; round < 20; ++round) {
    const auto tier = std::make_shared<MapTier>(kRowBytes);
    std::atomic<int> calls{0};
    tier->FailWith([&](const char*) {
      const int call = ++calls;
      if (call == 1 || call > 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return call == 1;
    });
    WriteBehind queue(tier, 100000);
    for (int64_t key = 0; key < 3; ++key) queue.Write({key}, Rows({key}, 1));
    Insist([&] { queue.Drain(); });
    EXPECT_EQ(tier->size(), 3u);
  }
}

TEST(TierQueue, WhatDoesNotFitIsRefusedWhole) {
  const auto tier = std::make_shared<MapTier>(kRowBytes);
  tier->FailWith([](const char* call) { return std::string(call) == "write"; });
  WriteBehind queue(tier, 100);
  queue.Write({1, 2}, Rows({1, 2}, 1));  // into an empty queue: whatever its size
  EXPECT_THROW(queue.Write({2, 3, 4}, Rows({2, 3, 4}, 2)), std::runtime_error);
  EXPECT_THROW(queue.Flush(), std::runtime_error);
  ExpectModel(&queue, {{1, 1}, {2, 1}}, {1, 2, 3, 4});
  EXPECT_EQ(queue.waiting_rows(), 2u);
  tier->FailWith(nullptr);
  queue.Write({2, 3, 4}, Rows({2, 3, 4}, 2));
  queue.Drain();
  ExpectModel(tier.get(), {{1, 1}, {2, 2}, {3, 2}, {4, 2}}, {1, 2, 3, 4, 5});
}

// A reader sees, of each key, a row no older than the last one written before it asked.
TEST(TierQueueConcurrent, ReadersBesideTheWriterNeverSeeAnOlderRow) {
  const auto tier = std::make_shared<MapTier>(kRowBytes);
  std::atomic<uint64_t> chance{1};
  tier->FailWith([&](const char* call) {
    return std::string(call) == "write" && HashKey(static_cast<int64_t>(++chance)) % 8 == 0;
  });
  WriteBehind queue(tier, 4000);
  const std::vector<int64_t> keys = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  constexpr uint64_t kVersions = 2000 / kFewer;
  std::atomic<uint64_t> written{1};
  queue.Write(keys, Rows(keys, 1));
  std::vector<std::thread> readers;
  for (int t = 0; t < 2; ++t) {
    readers.emplace_back([&] {
      std::vector<char> rows(keys.size() * kRowBytes);
      std::unique_ptr<bool[]> found(new bool[keys.size()]);
      while (written < kVersions) {
        const uint64_t least = written;
        queue.Read(keys.data(), keys.size(), rows.data(), found.get());
        const uint64_t most = written + 1;
        for (size_t i = 0; i < keys.size(); ++i) {
          ASSERT_TRUE(found[i]);
          const std::string row(rows.data() + i * kRowBytes, kRowBytes);
          bool seen = false;
          for (uint64_t v = least; v <= most && !seen; ++v) {
            seen = row == RowOf(keys[i], v, kRowBytes);
          }
          ASSERT_TRUE(seen) << "key " << keys[i] << " between " << least << " and " << most;
        }
      }
    });
  }
  for (uint64_t version = 2; version <= kVersions; ++version) {
    Insist([&] { queue.Write(keys, Rows(keys, version)); });
    written = version;
  }
  for (auto& reader : readers) reader.join();
}

void ExpectEachRowInOneLevel(TierChain* chain, const Model& model) {
  std::map<int64_t, int> levels;
  for (const auto& level : chain->levels()) {
    for (const int64_t key : level.tier->Keys()) ++levels[key];
    if (level.max_rows >= 0) ASSERT_LE(level.tier->size(), static_cast<size_t>(level.max_rows));
  }
  ASSERT_EQ(levels.size(), model.size());
  for (const auto& [key, version] : model) ASSERT_EQ(levels[key], 1) << key;
  ASSERT_EQ(chain->size(), model.size());
}

void ExpectScan(TierChain* chain, const Model& model, size_t most) {
  Model seen;
  std::vector<int64_t> keys;
  std::vector<char> rows;
  const auto scan = chain->Scan(true);
  while (scan->Next(most, &keys, &rows)) {
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_TRUE(seen.emplace(keys[i], 0).second) << keys[i];
      const auto it = model.find(keys[i]);
      ASSERT_NE(it, model.end());
      ASSERT_EQ(std::string(rows.data() + i * kRowBytes, kRowBytes),
                RowOf(it->first, it->second, kRowBytes));
    }
  }
  ASSERT_EQ(seen.size(), model.size());
}

TEST(TierChain, IsAMapWithEachRowInOneLevel) {
  for (uint64_t seed = 0; seed < 12 / kFewer + 2; ++seed) {
    Rng rng(seed);
    TestDirectory directory(true);
    SsdOptions options = SmallOptions(directory.path() + "/last");
    options.row_bytes = kRowBytes;
    std::vector<std::shared_ptr<MapTier>> fallible;
    std::vector<TierChain::Level> levels;
    for (size_t i = 0; i < 1 + seed % 2; ++i) {
      fallible.push_back(std::make_shared<MapTier>(kRowBytes));
      const auto limit = static_cast<int64_t>(rng.Below(2) * rng.Below(80));
      levels.push_back({"map", fallible.back(), limit});
    }
    levels.push_back({"ssd", std::make_shared<SsdTier>(options), -1});
    TierChain chain(std::move(levels));
    const bool fails = seed % 3 == 0;
    uint64_t chance = seed;
    for (const auto& tier : fallible) {
      tier->FailWith([&](const char* call) {
        return fails && std::string(call) != "read" &&
               HashKey(static_cast<int64_t>(++chance)) % 4 == 0;
      });
    }
    Model model;
    for (uint64_t version = 1; version <= 200 / kFewer + 30; ++version) {
      const auto keys = DistinctKeys(&rng, 60);
      switch (rng.Below(6)) {
        case 0:
          Insist([&] { chain.Erase(keys.data(), keys.size()); });
          for (const int64_t key : keys) model.erase(key);
          break;
        case 1:
          Insist([&] { chain.Flush(); });
          break;
        case 2:
          if (!rng.OneIn(8)) break;
          Insist([&] { chain.Clear(); });
          model.clear();
          break;
        default: {
          const auto rows = Rows(keys, version);
          Insist([&] { chain.Write(keys.data(), keys.size(), rows.data()); });
          for (const int64_t key : keys) model[key] = version;
          ExpectEachRowInOneLevel(&chain, model);
        }
      }
      ExpectModel(&chain, model, rng.OneIn(10) ? AllKeys() : DistinctKeys(&rng, 30));
      if (!fails && rng.OneIn(10)) ExpectScan(&chain, model, 1 + rng.Below(100));
      if (HasFatalFailure()) return;
    }
    uint64_t hits = 0;
    for (size_t i = 0; i < chain.levels().size(); ++i) hits += chain.traffic(i).hits;
    EXPECT_GT(hits, 0u);
  }
}

// An end in the middle of a write leaves a row in two levels; the upper one is newer.
TEST(TierChain, SettlesWhatAnEndLeftInTwoLevels) {
  const auto upper = std::make_shared<MapTier>(kRowBytes);
  const auto lower = std::make_shared<MapTier>(kRowBytes);
  const std::vector<int64_t> above = {1, 2, 3}, below = {2, 3, 4};
  lower->Write(below.data(), below.size(), Rows(below, 1).data());
  upper->Write(above.data(), above.size(), Rows(above, 2).data());
  TierChain chain({{"map", upper, 10}, {"map", lower, -1}});
  EXPECT_EQ(chain.size(), 6u);
  chain.Settle();
  const Model model = {{1, 2}, {2, 2}, {3, 2}, {4, 1}};
  EXPECT_EQ(chain.size(), model.size());
  ExpectEachRowInOneLevel(&chain, model);
  ExpectModel(&chain, model, {1, 2, 3, 4, 5});
}

// Rows that go down to the next level while they are read are found in one of the two.
TEST(TierChainConcurrent, ReadersFindRowsThatSpill) {
  TestDirectory directory(true);
  SsdOptions options = SmallOptions(directory.path() + "/last");
  options.row_bytes = kRowBytes;
  TierChain chain({{"map", std::make_shared<MapTier>(kRowBytes), 50},
                   {"ssd", std::make_shared<SsdTier>(options), -1}});
  std::atomic<int64_t> written{0};
  constexpr int64_t kKeys = 20000 / kFewer;
  std::thread reader([&] {
    Rng rng(1);
    while (written < kKeys) {
      const int64_t known = written;
      if (known == 0) continue;
      std::vector<int64_t> keys;
      for (int i = 0; i < 40; ++i) {
        keys.push_back(known - 1 - static_cast<int64_t>(rng.Below(std::min<int64_t>(known, 200))));
      }
      const ReadRows read = ReadMany(&chain, keys);
      for (size_t i = 0; i < keys.size(); ++i) {
        ASSERT_EQ(read.rows[i], RowOf(keys[i], 1, kRowBytes)) << keys[i];
      }
    }
  });
  for (int64_t key = 0; key < kKeys; key += 10) {
    std::vector<int64_t> keys;
    for (int64_t k = key; k < key + 10; ++k) keys.push_back(k);
    WriteMany(&chain, keys, 1);
    written = key + 10;
  }
  reader.join();
  EXPECT_EQ(chain.size(), static_cast<size_t>(kKeys));
  EXPECT_GT(chain.traffic(0).spilled_rows, 0u);
}

}  // namespace
}  // namespace msrec
