// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "fault_env.h"
#include "testing.h"
#include "tier/ssd_tier.h"
#include "tier_testing.h"

namespace msrec {
namespace {

using Model = std::map<int64_t, uint64_t>;  // key -> version

void ExpectEqual(SsdTier* tier, const Model& model, uint64_t distinct) {
  ASSERT_EQ(tier->size(), model.size());
  std::vector<int64_t> keys = tier->Keys();
  std::sort(keys.begin(), keys.end());
  size_t i = 0;
  for (const auto& [key, version] : model) ASSERT_EQ(keys[i++], key) << version;
  std::vector<int64_t> all;
  Rng rng(0);
  for (uint64_t k = 0; k < distinct; ++k) all.push_back(rng.Key(distinct));
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  const ReadRows read = ReadMany(tier, all);
  for (size_t j = 0; j < all.size(); ++j) {
    const auto it = model.find(all[j]);
    ASSERT_EQ(read.rows[j],
              it == model.end() ? "" : RowOf(it->first, it->second, tier->row_bytes()))
        << all[j];
  }
}

struct Way {
  const char* name;
  bool direct, io_uring;
};

class SsdTierWays : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (!GetParam().direct) return;
    try {
      Env::Posix()->Open(directory_.path() + "/probe", OpenMode::kCreate, true);
    } catch (const IoError& error) {
      const char* all = std::getenv("MINDSPORE_REC_REQUIRE_ALL");
      if (all != nullptr && std::string(all) == "1") FAIL() << error.what();
      GTEST_SKIP() << error.what();
    }
  }
  SsdOptions Options() const {
    SsdOptions options = SmallOptions(directory_.path() + "/tier");
    options.direct = GetParam().direct;
    options.io_uring = GetParam().io_uring;
    return options;
  }
  TestDirectory directory_{!GetParam().direct};
};
INSTANTIATE_TEST_SUITE_P(, SsdTierWays,
                         ::testing::Values(Way{"buffered_pread", false, false},
                                           Way{"buffered_uring", false, true},
                                           Way{"direct_pread", true, false},
                                           Way{"direct_uring", true, true}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(SsdTierWays, BehavesLikeAMapThroughReopening) {
  constexpr uint64_t kDistinct = 3000;
  for (const size_t row_bytes : {1, 192, 5000}) {
    SsdOptions options = Options();
    options.path += std::to_string(row_bytes);
    options.row_bytes = row_bytes;
    options.segment_bytes = std::max<uint64_t>(64 << 10, 20 * row_bytes);
    Rng rng(row_bytes);
    Model model;
    auto tier = std::make_unique<SsdTier>(options);
    uint64_t version = 0;
    for (size_t op = 0; op < 80 / kFewer + 20; ++op) {
      ++version;
      std::vector<int64_t> keys = rng.Keys(1 + rng.Below(300), kDistinct);
      std::sort(keys.begin(), keys.end());
      keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
      switch (rng.Below(8)) {
        case 0:
          tier->Erase(keys.data(), keys.size());
          for (const int64_t key : keys) model.erase(key);
          break;
        case 1: {
          const ReadRows read = ReadMany(tier.get(), keys);
          for (size_t i = 0; i < keys.size(); ++i) {
            const auto it = model.find(keys[i]);
            ASSERT_EQ(read.rows[i],
                      it == model.end() ? "" : RowOf(it->first, it->second, row_bytes));
          }
          break;
        }
        case 2:
          if (rng.OneIn(2)) {
            tier->Flush();
          } else if (rng.OneIn(4)) {
            tier->Compact();
          } else if (rng.OneIn(3)) {
            tier.reset();
            tier = std::make_unique<SsdTier>(options);
          }
          break;
        default:
          WriteMany(tier.get(), keys, version);
          for (const int64_t key : keys) model[key] = version;
      }
    }
    ExpectEqual(tier.get(), model, kDistinct);
    EXPECT_TRUE(tier->Verify().empty());
    tier->Close();
    tier = std::make_unique<SsdTier>(options);
    ExpectEqual(tier.get(), model, kDistinct);
    EXPECT_EQ(tier->gc_error(), "");
  }
}

// Power loss at every kind of moment: what was flushed is there, what came after is a prefix.
TEST(SsdTier, LosesNothingThatWasFlushedWhenPowerGoes) {
  constexpr uint64_t kDistinct = 400;
  const int rounds = static_cast<int>(300 / kFewer);
  size_t crashes = 0;
  for (int round = 0; round < rounds; ++round) {
    TestDirectory directory(true);
    FaultEnv env(round);
    Rng rng(round);
    SsdOptions options = SmallOptions(directory.path() + "/tier");
    options.segment_bytes = 32 << 10;
    options.gc_ratio = 1.2;
    Model flushed;
    std::vector<Model> after;  // the states a prefix may end in, the flushed one first
    uint64_t version = 0;
    for (int life = 0; life < 3; ++life) {
      env.LosePowerAfter(static_cast<int64_t>(rng.Below(60) + 1));
      if (life == 2) env.LosePowerAfter(-1);
      try {
        SsdTier tier(options, &env);
        // What is there now is one of the states.
        if (!after.empty()) {
          Model now;
          for (const int64_t key : tier.Keys()) now[key] = 0;
          const std::vector<int64_t> keys = tier.Keys();
          const ReadRows read = ReadMany(&tier, keys);
          bool known = false;
          for (const Model& state : after) {
            bool same = state.size() == now.size();
            for (size_t i = 0; same && i < keys.size(); ++i) {
              const auto it = state.find(keys[i]);
              same = it != state.end() && read.rows[i] == RowOf(it->first, it->second, 40);
            }
            if (!same) continue;
            flushed = state;
            known = true;
          }
          ASSERT_TRUE(known) << "round " << round << " life " << life << ": " << now.size()
                             << " rows, flushed were " << flushed.size();
        }
        after = {flushed};
        Model model = flushed;
        for (int op = 0; op < 60; ++op) {
          ++version;
          if (rng.OneIn(6)) {
            tier.Flush();
            flushed = model;
            after = {flushed};
          } else if (rng.OneIn(20)) {
            tier.Compact();
          } else {
            const bool erase = rng.OneIn(4);
            for (size_t k = 0, n = 1 + rng.Below(60); k < n; ++k) {
              const int64_t key = rng.Key(kDistinct);
              if (erase) {
                model.erase(key);
                after.push_back(model);
                tier.Erase(&key, 1);
              } else {
                model[key] = version;
                after.push_back(model);
                WriteOne(&tier, key, version);
              }
            }
          }
        }
        tier.Close();
        flushed = model;
        after = {flushed};
      } catch (const IoError&) {
        ASSERT_TRUE(env.dead());
        ++crashes;
      }
      ASSERT_NE(life == 2, env.dead());
      env.Reboot();
    }
  }
  EXPECT_GT(crashes, static_cast<size_t>(rounds) / 2);
}

TEST(SsdTier, AFailedWriteLeavesItUsable) {
  TestDirectory directory(true);
  FaultEnv env(1);
  SsdOptions options = SmallOptions(directory.path() + "/tier");
  for (const char* what : {"write", "allocate", "create", "rename"}) {
    SsdTier tier(options, &env);
    std::vector<int64_t> keys;
    for (int64_t key = 0; key < 3000; ++key) keys.push_back(key);
    WriteMany(&tier, keys, 1);
    env.FailWith(
        [&](const std::string& call, const std::string&) { return call == what ? ENOSPC : 0; });
    // The buffer takes some; then it says so, each time.
    int refused = 0;
    for (uint64_t version = 2; version < 60; ++version) {
      try {
        WriteMany(&tier, keys, version);
      } catch (const IoError& error) {
        ++refused;
        EXPECT_EQ(error.code().value(), ENOSPC);
        EXPECT_NE(error.path().find("/tier"), std::string::npos);
      }
      // Each row is of some version that was given, and readable.
      const ReadRows read = ReadMany(&tier, keys);
      for (size_t i = 0; i < keys.size(); i += 97) {
        bool known = false;
        for (uint64_t v = 1; v <= version; ++v) known |= read.rows[i] == RowOf(keys[i], v, 40);
        ASSERT_TRUE(known);
      }
    }
    EXPECT_GT(refused, 0) << what;
    env.FailWith(nullptr);
    WriteMany(&tier, keys, 100);
    tier.Flush();
    const ReadRows read = ReadMany(&tier, keys);
    for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(read.rows[i], RowOf(keys[i], 100, 40));
    tier.Close();
    SsdTier again(options, &env);
    ASSERT_EQ(again.size(), keys.size());
    ASSERT_EQ(ReadMany(&again, keys).rows, read.rows);
  }
}

TEST(SsdTier, AfterAFailedSyncItReadsOnAndWritesNoMore) {
  TestDirectory directory(true);
  FaultEnv env(1);
  const SsdOptions options = SmallOptions(directory.path() + "/tier");
  SsdTier tier(options, &env);
  WriteOne(&tier, 7, 1);
  env.FailWith(
      [](const std::string& call, const std::string&) { return call == "sync" ? EIO : 0; });
  EXPECT_THROW(tier.Flush(), IoError);
  env.FailWith(nullptr);
  EXPECT_THROW(tier.Flush(), IoError);
  EXPECT_EQ(ReadMany(&tier, {7}).rows[0], RowOf(7, 1, 40));
}

TEST(SsdTier, MaxBytesIsAnErrorAndErasingMakesRoom) {
  TestDirectory directory(true);
  SsdOptions options = SmallOptions(directory.path() + "/tier");
  options.max_bytes = 640 << 10;
  for (const bool background : {true, false}) {
    options.background_gc = background;
    options.path += "x";
    SsdTier tier(options);
    int64_t key = 0;
    try {
      for (; key < 100000; ++key) WriteOne(&tier, key, 1);
      FAIL() << "max_bytes was not enforced";
    } catch (const IoError& error) {
      EXPECT_EQ(error.code().value(), ENOSPC);
      EXPECT_NE(std::string(error.what()).find("max_bytes"), std::string::npos);
    }
    EXPECT_LE(tier.Stats().disk_bytes, options.max_bytes);
    ASSERT_GT(key, 4000);
    ASSERT_EQ(tier.size(), static_cast<size_t>(key));
    // Overwriting what is there is refused too, or done; nothing is lost either way.
    std::vector<int64_t> half;
    for (int64_t k = 0; k < key; k += 2) half.push_back(k);
    tier.Erase(half.data(), half.size());
    for (int round = 0; round < 20; ++round) {
      for (int64_t k = 1; k < key; k += 2) WriteOne(&tier, k, 2);
    }
    tier.Flush();
    EXPECT_LE(tier.Stats().disk_bytes, options.max_bytes);
    EXPECT_EQ(tier.size(), static_cast<size_t>(key) - half.size());
    for (const std::string& row : ReadMany(&tier, half).rows) ASSERT_EQ(row, "");
  }
}

TEST(SsdTier, ASecondOneIsRefused) {
  TestDirectory directory(true);
  SsdOptions options = SmallOptions(directory.path() + "/tier");
  SsdTier tier(options);
  try {
    SsdTier second(options);
    FAIL();
  } catch (const IoError& error) {
    EXPECT_EQ(error.code().value(), EBUSY);
  }
  options.read_only = true;
  EXPECT_THROW(SsdTier reader(options), IoError);
  tier.Close();
  const SsdTier reader(options);
  const SsdTier another(options);
}

TEST(SsdTier, ADirectoryThatVanishesIsAnErrorAtFlush) {
  TestDirectory directory(true);
  const SsdOptions options = SmallOptions(directory.path() + "/tier");
  SsdTier tier(options);
  WriteOne(&tier, 1, 1);
  tier.Flush();
  std::filesystem::remove_all(options.path);
  WriteOne(&tier, 2, 1);
  EXPECT_THROW(tier.Flush(), IoError);
  EXPECT_EQ(ReadMany(&tier, {1}).rows[0], RowOf(1, 1, 40));
}

// Flips one bit at every 64th byte of every file, in turn: never a wrong or older row.
TEST(SsdTier, AFlippedBitIsReportedOrHarmless) {
  TestDirectory directory(true);
  const SsdOptions options = SmallOptions(directory.path() + "/tier");
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 500; ++key) keys.push_back(key);
  {
    SsdOptions writing = options;
    writing.background_gc = false;  // it would remove files while they are copied
    SsdTier tier(writing);
    WriteMany(&tier, keys, 1);
    WriteMany(&tier, keys, 2);
    WriteMany(&tier, keys, 3);
    tier.Erase(keys.data(), 20);
    tier.Flush();
    const auto copy = std::filesystem::copy_options::recursive;
    // Once with the last segment open, as a killed process leaves it, once sealed.
    std::filesystem::copy(options.path, directory.path() + "/killed", copy);
    tier.Close();
    std::filesystem::copy(options.path, directory.path() + "/closed", copy);
  }
  size_t reported = 0, checked = 0;
  for (const std::string state : {"/killed", "/closed"}) {
    const std::string whole = directory.path() + state;
    for (const auto& file : std::filesystem::directory_iterator(whole)) {
      const std::string name = file.path().filename().string();
      for (size_t at = 5; at < file.file_size(); at += 331 * kFewer) {
        const std::string path = directory.path() + "/flipped";
        std::filesystem::remove_all(path);
        std::filesystem::copy(whole, path, std::filesystem::copy_options::recursive);
        {
          std::fstream f(path + "/" + name, std::ios::in | std::ios::out | std::ios::binary);
          f.seekg(static_cast<std::streamoff>(at));
          const char c = static_cast<char>(f.get());
          f.seekp(static_cast<std::streamoff>(at));
          f.put(static_cast<char>(c ^ 16));
        }
        SsdOptions flipped = options;
        flipped.path = path;
        flipped.background_gc = false;
        ++checked;
        try {
          SsdTier tier(flipped);
          for (size_t i = 0; i < keys.size(); ++i) {
            try {
              ASSERT_EQ(ReadMany(&tier, {keys[i]}).rows[0], i < 20 ? "" : RowOf(keys[i], 3, 40))
                  << name << " byte " << at;
            } catch (const Corruption& damage) {
              ++reported;
              EXPECT_NE(damage.path().find(name), std::string::npos);
              EXPECT_LT(at - damage.offset(), 56u) << "the record that holds the flipped bit";
            }
          }
        } catch (const Corruption& damage) {
          ++reported;
          EXPECT_NE(damage.path().find(name), std::string::npos);
        }
      }
    }
  }
  EXPECT_GT(reported, checked / 10);
}

TEST(SsdTier, AMissingSegmentOrManifestIsReported) {
  TestDirectory directory(true);
  const SsdOptions options = SmallOptions(directory.path() + "/tier");
  {
    SsdTier tier(options);
    WriteOne(&tier, 1, 1);
  }
  std::filesystem::rename(options.path + "/segment-00000001.seg", directory.path() + "/away");
  EXPECT_THROW(SsdTier tier(options), Corruption);
  std::filesystem::rename(directory.path() + "/away", options.path + "/segment-00000001.seg");
  {
    const SsdTier tier(options);
    EXPECT_EQ(tier.size(), 1u);
  }
  std::filesystem::remove(options.path + "/MANIFEST");
  EXPECT_THROW(SsdTier tier(options), Corruption);
}

TEST(SsdTier, AnyMaxBytesHoldsRowsOrIsRefusedByItsName) {
  TestDirectory directory(true);
  SsdOptions options = SmallOptions(directory.path() + "/tier");
  options.segment_bytes = 0;
  for (const size_t row_bytes : {8, 40, 4096, 100'000}) {
    options.row_bytes = row_bytes;
    bool refused = true;
    for (uint64_t bytes = 1000; refused; bytes *= 3) {
      options.max_bytes = bytes;
      options.path += "x";
      try {
        const SsdTier tier(options);
        refused = false;
      } catch (const std::invalid_argument& error) {
        EXPECT_EQ(std::string(error.what()).rfind("max_bytes must be at least", 0), 0) << bytes;
      }
    }
    EXPECT_LE(options.max_bytes, 1'000'000 + 1000 * row_bytes);
  }
}

TEST(SsdTier, OptionsOutOfRangeAreRefused) {
  TestDirectory directory(true);
  const auto refused = [&](auto change) {
    SsdOptions options = SmallOptions(directory.path() + "/tier");
    change(&options);
    EXPECT_THROW(SsdTier tier(options), std::invalid_argument);
  };
  refused([](SsdOptions* o) { o->row_bytes = size_t{1} << 30; });
  refused([](SsdOptions* o) { o->segment_bytes = 4096; });
  refused([](SsdOptions* o) { o->max_bytes = 128 << 10; });
  refused([](SsdOptions* o) { o->gc_ratio = 1; });
  refused([](SsdOptions* o) { o->queue_depth = 0; });
  refused([](SsdOptions* o) { o->path = ""; });
  {
    const SsdTier tier(SmallOptions(directory.path() + "/tier"));
  }
  refused([](SsdOptions* o) { o->row_bytes = 44; });
}

}  // namespace
}  // namespace msrec
