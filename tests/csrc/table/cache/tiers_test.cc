// SPDX-License-Identifier: Apache-2.0
//
// Tables with tiers below host memory beside the same table in memory: through threads, a tier that
// fails, and a capacity that is too small.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "fault_env.h"
#include "map_tier.h"
#include "statistics.h"
#include "table/table.h"
#include "table_testing.h"
#include "testing.h"
#include "tier_testing.h"

namespace msrec {
namespace {

constexpr int kDim = 4;

TableConfig Config() { return NormalConfig("tiers", kDim); }

void Start(Table* table) { table->BindOptimizer(RuleOf(RuleKind::kAdam)); }

using OpenTier = std::function<std::shared_ptr<Tier>(size_t row_bytes, int generation)>;

OpenTier Ssd(const TestDirectory& directory, Env* env = Env::Posix()) {
  return [&directory, env](size_t row_bytes, int generation) {
    SsdOptions options = SmallOptions(directory.path() + "/rows-" + std::to_string(generation));
    options.row_bytes = row_bytes;
    options.io_uring = env == Env::Posix();
    return std::make_shared<SsdTier>(options, env);
  };
}

// Over the tier, where remote_rows >= 0, one in memory of that many rows.
CacheSettings Cache(int64_t host_rows, OpenTier open, int64_t remote_rows = -1) {
  CacheSettings settings;
  settings.host_rows = host_rows;
  if (remote_rows >= 0) {
    const OpenTier map = [](size_t row_bytes, int) { return std::make_shared<MapTier>(row_bytes); };
    settings.levels.push_back({"remote", map, remote_rows});
  }
  settings.levels.push_back({"ssd", std::move(open), -1});
  return settings;
}

std::map<int64_t, ExportedRow> AllRows(const ExportedRows& rows) {
  std::vector<int64_t> twice;
  auto found = RowsByKey(rows, &twice);
  EXPECT_TRUE(twice.empty()) << "key " << twice.front() << " comes twice";
  return found;
}

void ExpectSame(Table* table, Table* twin) {
  const auto rows = AllRows(table->Export(true)), expected = AllRows(twin->Export(true));
  ASSERT_EQ(rows.size(), expected.size());
  ASSERT_EQ(table->Size(), twin->Size());
  for (const auto& [key, row] : expected) {
    const auto it = rows.find(key);
    ASSERT_NE(it, rows.end()) << key;
    ASSERT_TRUE(SameBits(it->second.value, row.value)) << key;
    ASSERT_TRUE(SameBits(it->second.state, row.state)) << key;
    ASSERT_EQ(it->second.count, row.count) << key;
    ASSERT_EQ(it->second.last_step, row.last_step) << key;
  }
}

double Stat(Table* table, const std::string& name) {
  for (const auto& [each, value] : Named(table->Stats())) {
    if (each == name) return value;
  }
  ADD_FAILURE() << "no statistic " << name;
  return 0;
}

std::vector<std::vector<int64_t>> Batches(uint64_t seed, size_t n, size_t size, uint64_t distinct) {
  Rng rng(seed);
  std::vector<std::vector<int64_t>> batches;
  for (size_t i = 0; i < n; ++i) {
    batches.push_back(rng.Keys(size, rng.OneIn(2) ? distinct : distinct / 10));
  }
  return batches;
}

void TrainOne(Table* table, const std::vector<int64_t>& ids, int64_t step,
              std::vector<float>* out = nullptr) {
  std::vector<float> values(ids.size() * kDim);
  const int64_t ticket = table->LookupTrain(View(ids), {}, values.data());
  const auto grad = Rng(static_cast<uint64_t>(step)).Floats(ids.size() * kDim);
  table->Accumulate(ticket, grad.data(), ids.size());
  table->Step({0.05f, 0, 1, step, 0});
  if (out != nullptr) *out = values;
}

// Calls fn until it does not throw; before each new try, heal().
template <typename Fn, typename Heal>
int Insist(Fn fn, Heal heal) {
  for (int failures = 0;; ++failures) {
    try {
      fn();
      return failures;
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find("table 'tiers'"), std::string::npos) << error.what();
      if (failures > 100) throw;
      heal();
    }
  }
}

class TableTiersConcurrent : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(RemoteRows, TableTiersConcurrent, ::testing::Values(-1, 0, 300));

TEST_P(TableTiersConcurrent, PrefetchTrainingAndReadersGiveTheBitsOfMemory) {
  Threads threads(3);
  TestDirectory directory(true);
  Table table(Config()), twin(Config());
  table.tiers().SetCache(Cache(600, Ssd(directory), GetParam()));
  Start(&table);
  Start(&twin);
  const auto batches = Batches(1, 150 / kFewer + 20, 120, 3000);
  for (size_t i = 0; i < batches.size(); ++i) TrainOne(&twin, batches[i], i + 1);

  constexpr size_t kAhead = 2;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<int64_t> numbers;
  size_t trained = 0;
  std::atomic<bool> done{false};
  std::thread prefetcher([&] {
    for (size_t i = 0; i < batches.size(); ++i) {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait(lock, [&] { return i < trained + kAhead; });
      lock.unlock();
      const int64_t number = table.tiers().Prefetch(View(batches[i]));
      if (i % 3 != 0) table.tiers().PrefetchWait(number);
      lock.lock();
      numbers.push_back(number);
      changed.notify_all();
    }
  });
  std::thread reader([&] {
    uint64_t mark = table.changes().Mark();
    for (uint64_t round = 0; !done; ++round) {
      std::vector<float> out(200 * kDim);
      table.LookupEval(View(Rng(round).Keys(200, 3000)), {}, out.data());
      const auto rows = Named(table.Stats());
      ASSERT_FALSE(rows.empty());
      if (round % 5 == 0) AllRows(table.Export(true));
      if (round % 7 == 0) {
        const ExportedRows changes = table.changes().ExportSince(mark, true);
        ASSERT_EQ(changes.dim, kDim);
        mark = table.changes().Mark();
        table.changes().ReleaseBefore(mark);
      }
      if (round % 11 == 0) table.tiers().Flush();
      table.Size();
      table.RecentLookups();
    }
  });
  for (size_t i = 0; i < batches.size(); ++i) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return !numbers.empty(); });
    const int64_t number = numbers.front();
    numbers.pop_front();
    lock.unlock();
    TrainOne(&table, batches[i], i + 1);
    table.tiers().PrefetchDone(number);
    lock.lock();
    ++trained;
    changed.notify_all();
  }
  done = true;
  prefetcher.join();
  reader.join();
  ExpectSame(&table, &twin);
  EXPECT_GT(Stat(&table, "prefetched_rows"), 0);
  EXPECT_GT(Stat(&table, "ssd_hits"), 0);
  EXPECT_LE(Stat(&table, "host_rows"), 600);
}

TEST(TableTiersConcurrent, ClosingWhileABatchIsFetchedEndsTheWait) {
  for (int round = 0; round < 10; ++round) {
    TestDirectory directory(true);
    Table table(Config());
    table.tiers().SetCache(Cache(200, Ssd(directory)));
    Start(&table);
    const auto batches = Batches(2, 20, 100, 2000);
    for (size_t i = 0; i < batches.size(); ++i) TrainOne(&table, batches[i], i + 1);
    std::thread waiter([&] {
      try {
        for (;;) {
          const int64_t number = table.tiers().Prefetch(View(batches[0]));
          table.tiers().PrefetchWait(number);
          table.tiers().PrefetchDone(number);
        }
      } catch (const TableClosed&) {
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    table.Close();
    waiter.join();
  }
}

TEST(TableTiersConcurrent, RowsStayForTheLastOfTheBatchesThatAreReadAhead) {
  for (int round = 0; round < 20; ++round) {
    TestDirectory directory(true);
    Table table(Config());
    table.tiers().SetCache(Cache(300, Ssd(directory)));
    Start(&table);
    int64_t step = 0;
    const auto train = [&](int64_t first) {
      std::vector<int64_t> keys(150);
      std::iota(keys.begin(), keys.end(), first);
      TrainOne(&table, keys, ++step);
    };
    for (int64_t first = 0; first < 1500; first += 150) train(first);
    std::vector<int64_t> shared(100);
    std::iota(shared.begin(), shared.end(), 0);
    // Read ahead side by side; either may be the one that promotes.
    const int64_t early = table.tiers().Prefetch(View(shared));
    const int64_t late = table.tiers().Prefetch(View(shared));
    table.tiers().PrefetchWait(early);
    table.tiers().PrefetchWait(late);
    table.tiers().PrefetchDone(early);
    for (int64_t first = 600; first < 1500; first += 150) train(first);
    const double misses = Stat(&table, "host_misses");
    TrainOne(&table, shared, ++step);
    EXPECT_EQ(Stat(&table, "host_misses"), misses);
    table.tiers().PrefetchDone(late);
  }
}

// A row that is prefetched, promoted by a lookup before it has arrived, and leaves the table again.
TEST(TableTiersConcurrent, WhatIsReadAheadDoesNotBringErasedRowsBack) {
  std::mutex mutex;
  std::condition_variable changed;
  bool reading = false, go_on = false;
  auto tier = std::make_shared<MapTier>(0);
  Table table(Config());
  table.tiers().SetCache(Cache(
      20, [&](size_t row_bytes, int) { return tier = std::make_shared<MapTier>(row_bytes); }));
  Start(&table);
  std::vector<int64_t> first, second;
  for (int64_t key = 0; key < 20; ++key) {
    first.push_back(key);
    second.push_back(key + 20);
  }
  TrainOne(&table, first, 1);
  TrainOne(&table, second, 2);  // the first are demoted
  table.tiers().Flush();        // all the way: what waits in memory is not read from the tier
  tier->FailWith([&](const char* call) {
    std::unique_lock<std::mutex> lock(mutex);
    if (std::string(call) != "read" || reading) return false;
    reading = true;
    changed.notify_all();
    changed.wait(lock, [&] { return go_on; });
    return false;
  });
  const std::vector<int64_t> ids = {3, 4};
  const int64_t number = table.tiers().Prefetch(View(ids));
  {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return reading; });
  }
  TrainOne(&table, ids, 3);
  EXPECT_EQ(table.Erase(View(ids)), 2u);
  {
    const std::lock_guard<std::mutex> lock(mutex);
    go_on = true;
    changed.notify_all();
  }
  table.tiers().PrefetchWait(number);
  table.tiers().PrefetchDone(number);
  EXPECT_EQ(table.Size(), 38u);
  const auto rows = AllRows(table.Export(true));
  EXPECT_EQ(rows.size(), 38u);
  EXPECT_EQ(rows.count(3) + rows.count(4), 0u);
}

// Training over a disk that fails now and then: a call either does all, or throws and does nothing;
// repeated, it goes on, and no row is lost.
TEST(TableTiers, CallsThatFailCanBeRepeatedAndLoseNothing) {
  int all_failures = 0;
  for (uint64_t seed = 0; seed < 10 / kFewer + 3; ++seed) {
    FaultEnv env(seed);
    TestDirectory directory(true);
    Table table(Config()), twin(Config());
    table.tiers().SetCache(Cache(150, Ssd(directory, &env), seed % 2 == 0 ? -1 : 100));
    Start(&table);
    Start(&twin);
    TrainOne(&table, {1}, 1);  // opens the tier
    TrainOne(&twin, {1}, 1);
    std::atomic<uint64_t> calls{seed};
    std::atomic<bool> bad{false};
    const auto fail = [&](const std::string& call, const std::string&) {
      if (!bad) return 0;
      // After a sync that failed the tier is to be opened again.
      if (call == "read") return HashKey(static_cast<int64_t>(++calls)) % 20 == 0 ? EIO : 0;
      if (call != "write" && call != "allocate" && call != "create") return 0;
      return HashKey(static_cast<int64_t>(++calls)) % 3 == 0 ? ENOSPC : 0;
    };
    env.FailWith(fail);
    Rng rng(seed + 100);
    const auto heal = [&] { bad = !rng.OneIn(4); };
    const auto batches = Batches(seed, 80 / kFewer + 20, 100, 1500);
    int failures = 0;
    for (size_t i = 0; i < batches.size(); ++i) {
      const auto step = static_cast<int64_t>(i) + 2;
      bad = rng.OneIn(3);
      std::vector<float> expected;
      TrainOne(&twin, batches[i], step, &expected);
      std::vector<float> values(batches[i].size() * kDim);
      int64_t ticket = 0;
      failures +=
          Insist([&] { ticket = table.LookupTrain(View(batches[i]), {}, values.data()); }, heal);
      ASSERT_TRUE(SameBits(values, expected)) << "step " << step << " seed " << seed;
      const auto grad = Rng(static_cast<uint64_t>(step)).Floats(values.size());
      table.Accumulate(ticket, grad.data(), batches[i].size());
      table.Step({0.05f, 0, 1, step, 0});
      const auto ids = rng.Keys(20, 1500);
      switch (rng.Below(8)) {
        case 0: {
          const size_t erased = twin.Erase(View(ids));
          size_t gone = 0;
          failures += Insist([&] { gone = table.Erase(View(ids)); }, heal);
          ASSERT_EQ(gone, erased);
          break;
        }
        case 1: {
          const auto put = rng.Floats(ids.size() * kDim);
          twin.Put(View(ids), put.data(), ids.size());
          failures += Insist([&] { table.Put(View(ids), put.data(), ids.size()); }, heal);
          break;
        }
        case 2:
          failures += Insist([&] { table.tiers().Flush(); }, heal);
          break;
        case 3: {
          std::vector<float> seen(ids.size() * kDim), right(ids.size() * kDim);
          twin.LookupEval(View(ids), {}, right.data());
          failures += Insist([&] { table.LookupEval(View(ids), {}, seen.data()); }, heal);
          ASSERT_TRUE(SameBits(seen, right));
          break;
        }
        case 4: {
          const int64_t number = table.tiers().Prefetch(View(ids));
          try {
            table.tiers().PrefetchWait(number);
          } catch (const std::runtime_error&) {
            ++failures;
          }
          table.tiers().PrefetchDone(number);
          break;
        }
        default:
          break;
      }
      ASSERT_LE(Stat(&table, "host_rows"), 150);
    }
    env.FailWith(nullptr);
    Insist([&] { table.tiers().Flush(); }, heal);  // a write that began before may fail yet
    ExpectSame(&table, &twin);
    all_failures += failures;
  }
  EXPECT_GT(all_failures, 0);
}

// While the disk takes nothing, training goes on as far as memory for what is on its way reaches;
// what was not written is there when the disk is well again.
TEST(TableTiers, RowsThatCannotBeWrittenWaitInMemory) {
  FaultEnv env(1);
  TestDirectory directory(true);
  Table table(Config()), twin(Config());
  table.tiers().SetCache(Cache(150, Ssd(directory, &env)));
  Start(&table);
  Start(&twin);
  const auto batches = Batches(3, 60, 100, 1500);
  for (size_t i = 0; i < batches.size(); ++i) {
    if (i == 10) {
      env.FailWith([](const std::string& call, const std::string&) {
        return call == "write" || call == "allocate" || call == "create" ? ENOSPC : 0;
      });
    }
    TrainOne(&table, batches[i], static_cast<int64_t>(i) + 1);
    TrainOne(&twin, batches[i], static_cast<int64_t>(i) + 1);
  }
  EXPECT_GT(Stat(&table, "queued_rows"), 0);
  try {
    table.tiers().Flush();
    FAIL() << "nothing was written";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("table 'tiers'"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(directory.path()), std::string::npos) << error.what();
  }
  // All of it can be read, for a checkpoint on another disk.
  EXPECT_GT(Stat(&table, "queued_rows"), 0);
  EXPECT_EQ(table.Size(), twin.Size());
  ExpectSame(&table, &twin);
  env.FailWith(nullptr);
  Insist([&] { table.tiers().Flush(); }, [] {});  // a write that began before may fail yet
  ExpectSame(&table, &twin);
  EXPECT_EQ(Stat(&table, "queued_rows"), 0);
  EXPECT_EQ(Stat(&table, "ssd_rows"), static_cast<double>(twin.Size()));
  ExpectSame(&table, &twin);
}

// After Flush every row is below; another table over the same files has them all.
TEST(TableTiers, FlushedRowsAreTheRowsOfTheNextTable) {
  TestDirectory directory(true);
  Table twin(Config());
  Start(&twin);
  const auto batches = Batches(4, 40, 100, 1500);
  {
    Table table(Config());
    table.tiers().SetCache(Cache(150, Ssd(directory)));
    Start(&table);
    for (size_t i = 0; i < batches.size(); ++i) {
      const auto step = static_cast<int64_t>(i) + 1;
      TrainOne(&table, batches[i], step);
      TrainOne(&twin, batches[i], step);
    }
    table.tiers().Flush();
  }
  Table table(Config());
  table.tiers().SetCache(Cache(150, Ssd(directory)));
  // The optimizer's rows are of another size than those of a table without one.
  Start(&table);
  table.clock().Set(static_cast<int64_t>(batches.size()), 0);
  ExpectSame(&table, &twin);
  for (size_t i = 0; i < batches.size(); ++i) {
    const auto step = static_cast<int64_t>(batches.size() + i) + 1;
    TrainOne(&table, batches[i], step);
    TrainOne(&twin, batches[i], step);
  }
  ExpectSame(&table, &twin);
}

TEST(TableTiers, ARecordedClearNamesRowsThatOnlyTheDirectoryHas) {
  TestDirectory directory(true);
  std::vector<int64_t> keys(200);
  std::iota(keys.begin(), keys.end(), 0);
  {
    Table table(Config());
    table.tiers().SetCache(Cache(300, Ssd(directory)));
    Start(&table);
    TrainOne(&table, keys, 1);
    table.tiers().Flush();
  }
  Table table(Config());
  table.tiers().SetCache(Cache(300, Ssd(directory)));
  Start(&table);
  const uint64_t mark = table.changes().Mark();
  table.Clear();
  EXPECT_EQ(table.changes().ExportSince(mark, false).n, keys.size());
}

TEST(TableTiers, TooSmallACapacityNamesTheLeastThatWorks) {
  std::vector<int64_t> many, few;
  for (int64_t key = 0; key < 100; ++key) many.push_back(key);
  for (int64_t key = 90; key < 130; ++key) few.push_back(key);
  for (const bool fits : {false, true}) {
    TestDirectory directory(true);
    Table table(Config()), twin(Config());
    table.tiers().SetCache(Cache(fits ? 100 : 99, Ssd(directory)));
    Start(&table);
    Start(&twin);
    for (int64_t step = 1; step < 5; ++step) {
      TrainOne(&table, few, step);
      TrainOne(&twin, few, step);
    }
    if (fits) {
      TrainOne(&table, many, 5);
      TrainOne(&twin, many, 5);
    } else {
      try {
        TrainOne(&table, many, 5);
        FAIL() << "99 rows hold 100 keys";
      } catch (const std::invalid_argument& error) {
        const std::string message = error.what();
        EXPECT_NE(message.find("table 'tiers'"), std::string::npos) << message;
        EXPECT_NE(message.find("host_rows=99"), std::string::npos) << message;
        EXPECT_NE(message.find("the least that works is 100"), std::string::npos) << message;
      }
    }
    ExpectSame(&table, &twin);
    for (int64_t step = 6; step < 9; ++step) {
      TrainOne(&table, few, step);
      TrainOne(&twin, few, step);
    }
    ExpectSame(&table, &twin);
  }
}

// Steps alone evict them: no lookup, trigger or export looks at the rows.
TEST(TableTiers, IdleRowsLeaveTheLowerTierWithoutATrigger) {
  TestDirectory directory(true);
  TableConfig config = Config();
  config.eviction.max_idle_steps = 20;
  Table table(config);
  table.tiers().SetCache(Cache(50, Ssd(directory)));
  Start(&table);
  for (int64_t step = 1; step <= 6; ++step) {
    std::vector<int64_t> ids(40);
    std::iota(ids.begin(), ids.end(), step * 40);
    TrainOne(&table, ids, step);
  }
  table.tiers().Flush();
  ASSERT_GE(Stat(&table, "ssd_rows"), 160);
  for (int64_t step = 7; step <= 60; ++step) TrainOne(&table, {1, 2}, step);
  table.tiers().Flush();
  EXPECT_LE(Stat(&table, "ssd_rows"), 2);
}

// A slice a step, until the triggered eviction has seen all rows.
TEST(TableTiers, ATriggeredEvictionGoesOnBelowUntilItsEnd) {
  TableConfig config = Config();
  config.eviction.max_idle_steps = 2;
  config.eviction.on_trigger = true;
  Table table(config);
  table.tiers().SetCache(
      Cache(50, [](size_t row_bytes, int) { return std::make_shared<MapTier>(row_bytes); }));
  Start(&table);
  int64_t step = 0;
  for (int64_t first = 100; first < 900; first += 40)
    TrainOne(&table, Range(first, first + 40), ++step);
  for (int i = 0; i < 3; ++i) TrainOne(&table, Range(0, 40), ++step);
  table.tiers().Flush();
  ASSERT_GE(Stat(&table, "ssd_rows"), 750);
  table.eviction().Evict(false);
  for (int i = 0; i < 30; ++i) TrainOne(&table, {1, 2}, ++step);
  table.tiers().Flush();
  EXPECT_LE(Stat(&table, "ssd_rows"), 40);
}

// While the tier takes nothing there is nothing to walk over, and more rows than the capacity.
TEST(TableTiers, RowsOverTheCapacityThatWaitInMemoryDoNotHoldAStepUp) {
  std::shared_ptr<MapTier> tier;
  TableConfig config = Config();
  config.eviction.max_rows = 60;
  Table table(config);
  table.tiers().SetCache(Cache(
      20, [&](size_t row_bytes, int) { return tier = std::make_shared<MapTier>(row_bytes); }));
  Start(&table);
  TrainOne(&table, Range(0, 20), 1);
  tier->FailWith([](const char* call) {
    if (call == std::string("write")) throw std::runtime_error("nothing is written");
    return false;
  });
  int64_t step = 1;
  for (int64_t first = 20; first < 100; first += 20) {
    TrainOne(&table, Range(first, first + 20), ++step);
  }
  EXPECT_GT(Stat(&table, "queued_rows"), 0);
  tier->FailWith(nullptr);
  TrainOne(&table, Range(80, 100), ++step);
  EXPECT_EQ(table.Size(), 60u);
}

TEST(TableTiers, RowsThatWereReadAheadLeaveHostMemoryOnceTheirBatchIsDone) {
  TestDirectory directory(true);
  Table table(Config());
  table.tiers().SetCache(Cache(100, Ssd(directory)));
  Start(&table);
  int64_t step = 0;
  for (int64_t first = 0; first < 400; first += 100) {
    TrainOne(&table, Range(first, first + 100), ++step);
  }
  for (int64_t first = 0; first < 400; first += 80) {
    const int64_t number = table.tiers().Prefetch(View(Range(first, first + 80)));
    table.tiers().PrefetchWait(number);
    table.tiers().PrefetchDone(number);
  }
  const double prefetched = Stat(&table, "prefetched_rows");
  const auto last = Range(0, 80);
  const int64_t number = table.tiers().Prefetch(View(last));
  table.tiers().PrefetchWait(number);
  EXPECT_GE(Stat(&table, "prefetched_rows"), prefetched + 60);
  table.tiers().PrefetchDone(number);
}

// A new run first reads ahead the rows that an earlier run has left in the tier.
TEST(TableTiers, TheFirstBatchThatIsReadAheadIsOfTheRowsOfAnEarlierRun) {
  std::shared_ptr<MapTier> tier;
  const OpenTier open = [&](size_t row_bytes, int) {
    if (tier == nullptr) tier = std::make_shared<MapTier>(row_bytes);
    return tier;
  };
  const auto keys = Range(0, 40);
  std::vector<float> expected(keys.size() * kDim), values;
  {
    Table table(Config());
    table.tiers().SetCache(Cache(100, open));
    Start(&table);
    TrainOne(&table, keys, 1);
    table.LookupEval(View(keys), {}, expected.data());
    table.tiers().Flush();
  }
  Table table(Config());
  table.tiers().SetCache(Cache(100, open));
  Start(&table);
  const int64_t number = table.tiers().Prefetch(View(keys));
  table.tiers().PrefetchWait(number);
  EXPECT_EQ(Stat(&table, "prefetched_rows"), 40);
  TrainOne(&table, keys, 1, &values);
  table.tiers().PrefetchDone(number);
  EXPECT_TRUE(SameBits(values, expected));
}

// As many rows as asked for at most, of all tiers: those who ask leave time for training so.
TEST(TableTiers, ScrubbingLooksAtAllRowsAFewAtATime) {
  Table table(Config());
  table.tiers().SetCache(
      Cache(50, [](size_t row_bytes, int) { return std::make_shared<MapTier>(row_bytes); }, 100));
  Start(&table);
  int64_t step = 0;
  for (int64_t first = 0; first < 800; first += 40) {
    TrainOne(&table, Range(first, first + 40), ++step);
  }
  table.tiers().Flush();
  const double rows = Stat(&table, "remote_rows") + Stat(&table, "ssd_rows");
  ASSERT_GE(Stat(&table, "remote_rows"), 70);
  ASSERT_GE(rows, 750);
  for (const size_t most : {size_t{60}, size_t{10000}}) {
    size_t looked = 0;
    for (bool ended = false; !ended;) {
      const auto [part, end] = table.tiers().Scrub(most);
      ASSERT_LE(part, most);
      looked += part;
      ended = end;
    }
    EXPECT_EQ(static_cast<double>(looked), rows) << most;
  }
}

TEST(TableTiers, ARefusedCacheNamesWhatIsWrong) {
  const OpenTier open = [](size_t row_bytes, int) { return std::make_shared<MapTier>(row_bytes); };
  for (const int64_t rows : {-1, 0, 1, 9}) {
    for (const int64_t bytes : {-1, 0, 1, 9}) {
      CacheSettings settings = Cache(rows, open);
      settings.host_bytes = bytes;
      const bool one = (rows < 0) != (bytes < 0);
      const std::string expected = !one ? "needs one of host_rows and host_bytes"
                                   : rows == 0 || bytes == 0
                                       ? "host_rows and host_bytes must be >= 1"
                                       : "";
      Table table(Config());
      std::string message;
      try {
        table.tiers().SetCache(std::move(settings));
      } catch (const std::invalid_argument& error) {
        message = error.what();
      }
      EXPECT_EQ(message.empty(), expected.empty()) << message << rows << ' ' << bytes;
      EXPECT_NE(message.find(expected), std::string::npos) << message << rows << ' ' << bytes;
    }
  }
}

// Rows in the tier are older than rows in host memory, so rows in the tier are evicted first, at
// any position of the sweep over the tier.
TEST(TableTiers, RowsOverTheCapacityGoFromTheTierFirst) {
  constexpr int64_t kHost = 20, kMost = 60;
  TableConfig config = Config();
  config.eviction.max_rows = kMost;
  Table table(config);
  table.tiers().SetCache(
      Cache(kHost, [](size_t row_bytes, int) { return std::make_shared<MapTier>(row_bytes); }));
  Start(&table);
  int64_t step = 0;
  for (int64_t next = 5; next < 400; next += 5) {
    TrainOne(&table, Range(next - 5, next), ++step);
    ASSERT_EQ(table.Size(), static_cast<size_t>(std::min(next, kMost)));
    const auto newest = Range(std::max<int64_t>(next - kHost, 0), next);
    const std::unique_ptr<bool[]> present(new bool[kHost]);
    table.Contains(View(newest), present.get());
    for (size_t i = 0; i < newest.size(); ++i) ASSERT_TRUE(present[i]) << newest[i] << ' ' << next;
  }
}

// Two lookups of one step need room together.
TEST(TableTiers, TheLookupsOfOneStepStayTogether) {
  TestDirectory directory(true);
  Table table(Config());
  table.tiers().SetCache(Cache(60, Ssd(directory)));
  Start(&table);
  std::vector<int64_t> one, other;
  for (int64_t key = 0; key < 40; ++key) {
    one.push_back(key);
    other.push_back(key + 20);
  }
  std::vector<float> out(40 * kDim);
  const std::vector<float> grad(40 * kDim, 1.0f);
  const int64_t first = table.LookupTrain(View(one), {}, out.data());
  const int64_t second = table.LookupTrain(View(other), {}, out.data());
  std::vector<int64_t> third = {100};
  EXPECT_THROW(table.LookupTrain(View(third), {}, out.data()), std::invalid_argument);
  table.Accumulate(first, grad.data(), 40);
  table.Accumulate(second, grad.data(), 40);
  table.Step({0.05f, 0, 1, 1, 0});
  TrainOne(&table, third, 2);
  EXPECT_EQ(table.Size(), 61u);
}

}  // namespace
}  // namespace msrec
