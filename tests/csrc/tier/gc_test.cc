// SPDX-License-Identifier: Apache-2.0
//
// Garbage collection and threads of the SSD tier.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "testing.h"
#include "tier_testing.h"

namespace msrec {
namespace {

TEST(SsdTierGc, OverwritingKeepsToTheRatio) {
  TestDirectory directory(true);
  SsdOptions options = SmallOptions(directory.path() + "/tier");
  options.row_bytes = 192;
  options.segment_bytes = 256 << 10;
  SsdTier tier(options);
  Rng rng(1);
  const uint64_t rows = 40000 / kFewer;
  for (uint64_t round = 0; round < 400; ++round) {
    std::vector<int64_t> keys;
    for (uint64_t i = 0; i < rows / 40; ++i) keys.push_back(static_cast<int64_t>(rng.Below(rows)));
    WriteMany(&tier, keys, round);
  }
  const TierStats stats = tier.Stats();
  EXPECT_GT(stats.gc_segments, 5u);
  // ratio 1.35 * 1.08, the record's 28 bytes for a row of 192, three segments of slack, the last
  // segment, and what a writer appends before it looks again: a megabyte.
  const double slack = 9.0 * static_cast<double>(options.segment_bytes);
  EXPECT_LT(static_cast<double>(stats.disk_bytes),
            1.35 * 1.08 * 220 / 192 * static_cast<double>(stats.live_bytes) + slack);
  EXPECT_EQ(tier.gc_error(), "");
}

// What was erased stays away, whatever is collected and however often it is opened again.
TEST(SsdTierGc, ErasedKeysNeverComeBack) {
  TestDirectory directory(true);
  SsdOptions options = SmallOptions(directory.path() + "/tier");
  options.segment_bytes = 32 << 10;
  options.gc_ratio = 1.1;
  Rng rng(7);
  std::map<int64_t, uint64_t> model;
  auto tier = std::make_unique<SsdTier>(options);
  constexpr uint64_t kDistinct = 2000;
  for (uint64_t round = 1; round <= 200 / kFewer + 50; ++round) {
    for (const bool erase : {false, true}) {
      // Most of the erasing hits few keys, so that some segments stay old and untouched.
      std::vector<int64_t> keys = rng.Keys(1 + rng.Below(200), rng.OneIn(3) ? kDistinct : 300);
      if (erase) {
        tier->Erase(keys.data(), keys.size());
        for (const int64_t key : keys) model.erase(key);
      } else {
        WriteMany(tier.get(), keys, round);
        for (const int64_t key : keys) model[key] = round;
      }
    }
    if (!rng.OneIn(5)) continue;
    tier->Flush();
    if (rng.OneIn(3)) tier->Compact();
    tier->Close();
    tier = std::make_unique<SsdTier>(options);
    ASSERT_EQ(tier->size(), model.size()) << round;
    for (const int64_t key : tier->Keys()) ASSERT_EQ(model.count(key), 1u) << key;
    std::vector<int64_t> keys;
    for (const auto& [key, version] : model) keys.push_back(key);
    const ReadRows read = ReadMany(tier.get(), keys);
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(read.rows[i], RowOf(keys[i], model[keys[i]], 40));
    }
  }
}

TEST(SsdTierGc, CompactingLeavesRowsOnly) {
  TestDirectory directory(true);
  const SsdOptions options = SmallOptions(directory.path() + "/tier");
  SsdTier tier(options);
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 5000; ++key) keys.push_back(key);
  for (uint64_t version = 1; version < 4; ++version) WriteMany(&tier, keys, version);
  tier.Erase(keys.data(), 4000);
  EXPECT_GT(tier.Stats().tombstone_records, 0u);
  tier.Compact();
  const TierStats stats = tier.Stats();
  EXPECT_EQ(stats.tombstone_records, 0u);
  uint64_t records = 0;
  for (const auto& segment : tier.Segments()) records += segment.slots;
  EXPECT_EQ(records, 1000u);
  const std::vector<int64_t> left(keys.begin() + 4000, keys.end());
  const ReadRows read = ReadMany(&tier, left);
  for (size_t i = 0; i < left.size(); ++i) ASSERT_EQ(read.rows[i], RowOf(left[i], 3, 40));
  tier.Close();
  SsdTier again(options);
  EXPECT_EQ(again.size(), 1000u);
}

TEST(SsdTierGc, EverythingErasedLeavesNothingBehind) {
  TestDirectory directory(true);
  const SsdOptions options = SmallOptions(directory.path() + "/tier");
  SsdTier tier(options);
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 20000; ++key) keys.push_back(key);
  WriteMany(&tier, keys, 1);
  tier.Erase(keys.data(), keys.size());
  tier.Compact();
  EXPECT_EQ(tier.size(), 0u);
  EXPECT_LE(tier.Stats().disk_bytes, 3 * options.segment_bytes);
}

TEST(SsdTierGc, ManyOpeningsDoNotLeaveManySegments) {
  TestDirectory directory(true);
  const SsdOptions options = SmallOptions(directory.path() + "/tier");
  for (int64_t key = 0; key < 150; ++key) {
    SsdTier tier(options);
    ASSERT_EQ(tier.size(), static_cast<size_t>(key));
    WriteOne(&tier, key, 1);
  }
  SsdTier tier(options);
  for (int i = 0; i < 1200 && tier.Stats().segments > 40; ++i) {
    WriteOne(&tier, 1000, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_LE(tier.Stats().segments, 40u);
}

// Readers and writers of all kinds at once. A version never goes back.
TEST(SsdTierConcurrent, ReadersSeeVersionsThatOnlyGrow) {
  TestDirectory directory(true);
  SsdOptions options = SmallOptions(directory.path() + "/tier");
  options.row_bytes = 48;
  options.gc_ratio = 1.2;
  SsdTier tier(options);
  constexpr int64_t kKeys = 4000;
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < kKeys; ++key) keys.push_back(key);
  const auto row = [](int64_t key, uint64_t version) {
    std::string text = RowOf(key, version, 48);
    std::memcpy(&text[40], &version, 8);
    return text;
  };
  const auto write = [&](const std::vector<int64_t>& some, uint64_t version) {
    std::string rows;
    for (const int64_t key : some) rows += row(key, version);
    tier.Write(some.data(), some.size(), rows.data());
  };
  write(keys, 1);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {  // each has its own keys; some are erased in between
    threads.emplace_back([&, t] {
      Rng rng(t);
      for (uint64_t version = 2; version < 200 / kFewer + 40; ++version) {
        std::vector<int64_t> some;
        for (int64_t key = t; key < kKeys; key += 2) {
          if (rng.OneIn(3)) some.push_back(key);
        }
        if (rng.OneIn(10)) tier.Erase(some.data(), some.size());
        write(some, version);
        if (rng.OneIn(20)) tier.Flush();
      }
    });
  }
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      Rng rng(100 + t);
      std::vector<uint64_t> last(kKeys, 0);
      std::string rows(500 * 48, '\0');
      std::unique_ptr<bool[]> found(new bool[500]);
      while (!stop) {
        std::vector<int64_t> some;
        for (int i = 0; i < 500; ++i) some.push_back(static_cast<int64_t>(rng.Below(kKeys)));
        tier.Read(some.data(), some.size(), &rows[0], found.get());
        for (int i = 0; i < 500; ++i) {
          if (!found[i]) continue;
          const std::string got = rows.substr(i * 48, 48);
          uint64_t version = 0;
          std::memcpy(&version, &got[40], 8);
          ASSERT_EQ(got, row(some[i], version));
          ASSERT_GE(version, last[some[i]]);
          last[some[i]] = version;
        }
        if (rng.OneIn(50)) static_cast<void>(tier.Stats());
        if (rng.OneIn(100)) static_cast<void>(tier.Keys());
        if (t == 0 && rng.OneIn(300)) tier.Compact();
      }
    });
  }
  threads[0].join();
  threads[1].join();
  stop = true;
  threads[2].join();
  threads[3].join();
  EXPECT_EQ(tier.gc_error(), "");
  EXPECT_GT(tier.Stats().gc_segments, 0u);
  tier.Close();
  SsdTier again(options);
  EXPECT_TRUE(again.Verify().empty());
}

}  // namespace
}  // namespace msrec
