// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <map>
#include <thread>

#include "fault_env.h"
#include "testing.h"
#include "tier/ssd_tier.h"
#include "tier_testing.h"

namespace msrec {
namespace {

using Model = std::map<int64_t, uint64_t>;          // key -> version
using Given = std::multimap<int64_t, std::string>;  // key -> rows, as a scan gave them

// Takes parts of `most` until the scan ends.
void Drain(const Tier& tier, TierScan* scan, size_t most, Given* given) {
  std::vector<int64_t> keys;
  std::vector<char> rows;
  while (scan->Next(most, &keys, &rows)) {
    ASSERT_GE(keys.size(), 1u);
    ASSERT_LE(keys.size(), std::max<size_t>(1, most));
    ASSERT_EQ(rows.size(), keys.size() * tier.row_bytes());
    for (size_t i = 0; i < keys.size(); ++i) {
      given->emplace(keys[i], std::string(&rows[i * tier.row_bytes()], tier.row_bytes()));
    }
  }
  ASSERT_TRUE(keys.empty());
  ASSERT_FALSE(scan->Next(most, &keys, &rows));
}

void ExpectExactly(const Given& given, const Model& model, size_t row_bytes) {
  ASSERT_EQ(given.size(), model.size());
  auto it = given.begin();
  for (const auto& [key, version] : model) {
    ASSERT_EQ(it->first, key);
    ASSERT_EQ(it->second, RowOf(key, version, row_bytes)) << key;
    ++it;
  }
}

TEST(SsdTierScan, GivesEveryRowOnceWhereNobodyWrites) {
  for (const size_t row_bytes : {1, 192, 5000}) {
    TestDirectory directory(true);
    SsdOptions options = SmallOptions(directory.path() + "/tier");
    options.row_bytes = row_bytes;
    options.segment_bytes = std::max<uint64_t>(64 << 10, 20 * row_bytes);
    options.gc_ratio = 1.2;
    Rng rng(row_bytes);
    Model model;
    auto tier = std::make_unique<SsdTier>(options);
    for (uint64_t version = 1; version < 60 / kFewer + 20; ++version) {
      std::vector<int64_t> keys = rng.Keys(1 + rng.Below(300), 3000);
      std::sort(keys.begin(), keys.end());
      keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
      const uint64_t action = rng.Below(16);
      if (action < 3) {
        tier->Erase(keys.data(), keys.size());
        for (const int64_t key : keys) model.erase(key);
      } else if (action == 3) {
        tier->Compact();
      } else if (action == 4) {
        tier->Flush();
      } else if (action == 5) {
        tier.reset();
        tier = std::make_unique<SsdTier>(options);
      } else if (action == 6 && rng.OneIn(3)) {
        tier->Clear();
        model.clear();
        ASSERT_EQ(tier->size(), 0u);
      } else {
        WriteMany(tier.get(), keys, version);
        for (const int64_t key : keys) model[key] = version;
      }
      const auto scan = tier->Scan(true);
      Given given;
      Drain(*tier, scan.get(), 1 + rng.Below(rng.OneIn(2) ? 10 : 1000), &given);
      ASSERT_NO_FATAL_FAILURE(ExpectExactly(given, model, row_bytes));

      const std::unique_ptr<bool[]> found(new bool[keys.size()]);
      tier->Contains(keys.data(), keys.size(), found.get());
      for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(found[i], model.count(keys[i]) != 0);
    }
    tier.reset();
    options.read_only = true;
    SsdTier again(options);
    const auto scan = again.Scan(false);
    Given given;
    Drain(again, scan.get(), 100, &given);
    ExpectExactly(given, model, row_bytes);
  }
}

// Changes between the parts of one scan. Versions only grow, so what the rows were while it ran is
// a range of versions.
TEST(SsdTierScan, RowsThatStayAreGivenAsTheyWereDuringTheScan) {
  for (uint64_t seed = 0; seed < 40 / kFewer + 4; ++seed) {
    TestDirectory directory(true);
    SsdOptions options = SmallOptions(directory.path() + "/tier");
    options.segment_bytes = 32 << 10;
    options.background_gc = seed % 2 == 0;
    options.gc_ratio = 1.2;
    Rng rng(seed);
    SsdTier tier(options);
    std::vector<int64_t> keys;
    for (int64_t key = 0; key < 3000; ++key) keys.push_back(key);
    WriteMany(&tier, keys, 1);
    std::vector<std::vector<uint64_t>> versions(keys.size(), {1});  // that each had meanwhile
    std::vector<bool> stayed(keys.size(), true);
    const bool much = seed % 3 != 0;  // so much that the log never ends
    const auto scan = tier.Scan(seed % 4 == 1);
    std::vector<int64_t> got;
    std::vector<char> rows;
    std::vector<int> times(keys.size(), 0);
    uint64_t version = 1;
    size_t parts = 0;
    while (scan->Next(40 + rng.Below(60), &got, &rows)) {
      ++parts;
      for (size_t i = 0; i < got.size(); ++i) {
        const auto key = static_cast<size_t>(got[i]);
        const std::string row(&rows[i * 40], 40);
        bool known = false;
        for (const uint64_t each : versions[key]) known |= row == RowOf(got[i], each, 40);
        ASSERT_TRUE(known) << "key " << key << ", seed " << seed;
        ++times[key];
      }
      ++version;
      std::vector<int64_t> some;
      for (size_t i = 0, n = much ? 150 : 10; i < n; ++i) some.push_back(rng.Below(keys.size()));
      if (rng.OneIn(8)) {
        tier.Erase(some.data(), some.size());
        for (const int64_t key : some) stayed[key] = false;
      } else {
        WriteMany(&tier, some, version);
        for (const int64_t key : some) versions[key].push_back(version);
      }
      if (rng.OneIn(20)) tier.Compact();
      ASSERT_LT(parts, 5000u);
    }
    for (size_t key = 0; key < keys.size(); ++key) {
      ASSERT_TRUE(times[key] >= 1 || !stayed[key]) << "key " << key << ", seed " << seed;
    }
    EXPECT_EQ(tier.gc_error(), "");
  }
}

TEST(SsdTierScan, AnExactScanHoldsGarbageCollectionUntilAWriterNeedsIt) {
  TestDirectory directory(true);
  SsdOptions options = SmallOptions(directory.path() + "/tier");
  options.max_bytes = 1 << 20;
  for (const bool background : {true, false}) {
    options.background_gc = background;
    options.path += "x";
    SsdTier tier(options);
    std::vector<int64_t> keys;
    for (int64_t key = 0; key < 5000; ++key) keys.push_back(key);
    WriteMany(&tier, keys, 1);
    auto scan = tier.Scan(true);
    const uint64_t before = tier.Stats().gc_segments;
    // The log has 1.6 times its rows: collection would like to, and is not needed yet.
    WriteMany(&tier, {keys.begin(), keys.begin() + 3000}, 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(tier.Stats().gc_segments, before);
    for (uint64_t version = 3; version < 12; ++version) WriteMany(&tier, keys, version);
    EXPECT_GT(tier.Stats().gc_segments, before);
    EXPECT_LE(tier.Stats().disk_bytes, options.max_bytes);
    Given given;
    Drain(tier, scan.get(), 1000, &given);
    for (const int64_t key : keys) ASSERT_GE(given.count(key), 1u);
    scan.reset();
    if (!background) continue;
    // Afterwards it catches up by itself.
    const auto records = [&] {
      uint64_t sum = 0;
      for (const auto& segment : tier.Segments()) sum += segment.slots;
      return sum;
    };
    for (int i = 0; i < 3000 && records() > 7900; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_LE(records(), 7900u);
  }
}

TEST(SsdTierScan, EndsWithItsTier) {
  TestDirectory directory(true);
  const SsdOptions options = SmallOptions(directory.path() + "/tier");
  SsdTier tier(options);
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 1000; ++key) keys.push_back(key);
  WriteMany(&tier, keys, 1);
  const auto scan = tier.Scan(true);
  const auto ended = tier.Scan(false);
  Given given;
  Drain(tier, ended.get(), 1000, &given);
  std::vector<int64_t> got;
  std::vector<char> rows;
  ASSERT_TRUE(scan->Next(10, &got, &rows));
  tier.Close();
  EXPECT_THROW(scan->Next(10, &got, &rows), IoError);
  EXPECT_THROW(ended->Next(10, &got, &rows), IoError);
  EXPECT_THROW(tier.Scan(false), IoError);
  EXPECT_THROW(tier.Clear(), IoError);
  bool found = false;
  EXPECT_THROW(tier.Contains(keys.data(), 1, &found), IoError);
}

TEST(SsdTierScan, DamageToARowIsReportedAndDamageToAnOldVersionIsNot) {
  TestDirectory directory(true);
  SsdOptions options = SmallOptions(directory.path() + "/tier");
  options.background_gc = false;
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 500; ++key) keys.push_back(key);
  {
    SsdTier tier(options);
    WriteMany(&tier, keys, 1);
    WriteMany(&tier, {keys.begin(), keys.begin() + 250}, 2);
  }
  const std::string name = options.path + "/" + SegmentName(1);
  const RecordShape shape(options.row_bytes);
  for (size_t at = 0; at < shape.record_bytes; at += 3) {  // of the key too
    for (const uint64_t slot : {100, 400}) {               // an old version, and a row
      const auto flip = [&] {
        std::fstream f(name, std::ios::in | std::ios::out | std::ios::binary);
        const auto offset = static_cast<std::streamoff>(shape.OffsetOf(slot) + at);
        f.seekg(offset);
        const char c = static_cast<char>(f.get());
        f.seekp(offset);
        f.put(static_cast<char>(c ^ 4));
      };
      flip();
      {
        SsdTier tier(options);
        const auto scan = tier.Scan(false);
        Given given;
        if (slot == 100) {
          Drain(tier, scan.get(), 64, &given);
          ASSERT_EQ(given.size(), keys.size());
        } else {
          std::vector<int64_t> got;
          std::vector<char> rows;
          for (int twice = 0; twice < 2; ++twice) {
            try {
              while (scan->Next(64, &got, &rows)) {
                for (const int64_t key : got) ASSERT_NE(key, 400);
              }
              FAIL() << "byte " << at;
            } catch (const Corruption& damage) {
              EXPECT_EQ(damage.path(), name);
              EXPECT_EQ(damage.offset(), shape.OffsetOf(400));
            }
          }
        }
      }
      flip();
    }
  }
}

TEST(SsdTierClear, IsAllOrNothingWhenPowerGoes) {
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 3000; ++key) keys.push_back(key);
  size_t kept = 0, gone = 0;
  for (int round = 0; round < 60; ++round) {
    TestDirectory directory(true);
    FaultEnv env(round);
    SsdOptions options = SmallOptions(directory.path() + "/tier");
    options.segment_bytes = 32 << 10;
    {
      SsdTier tier(options, &env);
      WriteMany(&tier, keys, 1);
      tier.Flush();
      env.LosePowerAfter(round / 5);
      bool cleared = true;
      try {
        tier.Clear();
      } catch (const IoError&) {
        cleared = false;
      }
      env.LosePowerAfter(0);
      if (!cleared) {
        ASSERT_TRUE(tier.size() == 0 || tier.size() == keys.size());
      }
      kept += cleared ? 0 : 1;
    }
    env.Reboot();
    SsdTier tier(options, &env);
    ASSERT_TRUE(tier.size() == 0 || tier.size() == keys.size()) << tier.size();
    gone += tier.size() == 0 ? 1 : 0;
    // Either way it goes on.
    WriteMany(&tier, keys, 2);
    tier.Flush();
    ASSERT_EQ(ReadMany(&tier, {5}).rows[0], RowOf(5, 2, 40));
  }
  EXPECT_GT(gone, 0u);
  EXPECT_LT(gone, 60u);
  EXPECT_GT(kept, 0u);
}

TEST(SsdTierClear, AfterAFailedOneFlushKeepsItsPromise) {
  TestDirectory directory(true);
  FaultEnv env(1);
  const SsdOptions options = SmallOptions(directory.path() + "/tier");
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 3000; ++key) keys.push_back(key);
  for (const char* what : {"create", "sync", "rename", "syncdir"}) {
    std::filesystem::remove_all(options.path);
    {
      SsdTier tier(options, &env);
      WriteMany(&tier, keys, 1);
      tier.Flush();
      env.FailWith(
          [&](const std::string& call, const std::string&) { return call == what ? EIO : 0; });
      EXPECT_THROW(tier.Clear(), IoError) << what;
      env.FailWith(nullptr);
      ASSERT_EQ(tier.size(), keys.size());
      tier.Flush();  // acknowledged: they are there
      const auto copy = std::filesystem::copy_options::recursive;
      std::filesystem::remove_all(directory.path() + "/killed");
      std::filesystem::copy(options.path, directory.path() + "/killed", copy);
    }
    SsdOptions killed = options;
    killed.path = directory.path() + "/killed";
    SsdTier tier(killed);
    EXPECT_EQ(tier.size(), keys.size()) << what;
  }
}

TEST(SsdTierClear, MakesRoomAndSoDoesNothingElse) {
  TestDirectory directory(true);
  SsdOptions options = SmallOptions(directory.path() + "/tier");
  options.max_bytes = 640 << 10;
  SsdTier tier(options);
  int64_t key = 0;
  EXPECT_THROW(for (;; ++key) WriteOne(&tier, key, 1), IoError);
  tier.Clear();
  EXPECT_EQ(tier.size(), 0u);
  EXPECT_EQ(tier.Stats().disk_bytes, 0u);
  size_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(options.path)) {
    files += IsSegmentName(file.path().filename().string()) ? 1 : 0;
  }
  EXPECT_EQ(files, 0u);
  for (int64_t k = 0; k < key; ++k) WriteOne(&tier, k, 2);
  EXPECT_EQ(ReadMany(&tier, {3}).rows[0], RowOf(3, 2, 40));
}

// A scan beside writers, erasers and the collector: what stays is given, and no version that was
// over before the scan began.
TEST(SsdTierConcurrent, ScansBesideWriters) {
  TestDirectory directory(true);
  SsdOptions options = SmallOptions(directory.path() + "/tier");
  options.row_bytes = 48;
  options.gc_ratio = 1.2;
  SsdTier tier(options);
  constexpr int64_t kKeys = 6000;  // the last third comes and goes
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
  std::vector<int64_t> all;
  for (int64_t key = 0; key < kKeys; ++key) all.push_back(key);
  write(all, 1);
  std::vector<std::atomic<uint64_t>> done(kKeys);  // the version a Write has returned for
  for (auto& each : done) each = 1;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    Rng rng(1);
    for (uint64_t version = 2; !stop; ++version) {
      std::vector<int64_t> some;
      for (int i = 0; i < 600; ++i) some.push_back(rng.Below(kKeys));
      write(some, version);
      for (const int64_t key : some) done[key] = version;
      std::vector<int64_t> gone;
      for (int i = 0; i < 100; ++i) gone.push_back(2 * kKeys / 3 + rng.Below(kKeys / 3));
      if (rng.OneIn(3)) tier.Erase(gone.data(), gone.size());
      if (rng.OneIn(20)) tier.Flush();
    }
  });
  // On a busy machine the writer may not have run enough by then for anything to be collected.
  constexpr int kRounds = static_cast<int>(30 / kFewer) + 5;
  const auto collected = [&] { return tier.Stats().gc_segments > 0; };
  for (int round = 0; round < kRounds || (!collected() && round < 100 * kRounds); ++round) {
    std::vector<uint64_t> least;
    for (const auto& each : done) least.push_back(each);
    const auto scan = tier.Scan(round % 3 == 0);
    std::vector<int64_t> keys;
    std::vector<char> rows;
    std::vector<bool> seen(kKeys, false);
    while (scan->Next(500, &keys, &rows)) {
      for (size_t i = 0; i < keys.size(); ++i) {
        const std::string got(&rows[i * 48], 48);
        uint64_t version = 0;
        std::memcpy(&version, &got[40], 8);
        ASSERT_EQ(got, row(keys[i], version));
        ASSERT_GE(version, least[keys[i]]) << keys[i];
        seen[keys[i]] = true;
      }
    }
    for (int64_t key = 0; key < 2 * kKeys / 3; ++key) ASSERT_TRUE(seen[key]) << key;
  }
  stop = true;
  writer.join();
  EXPECT_EQ(tier.gc_error(), "");
  EXPECT_GT(tier.Stats().gc_segments, 0u);
}

}  // namespace
}  // namespace msrec
