// SPDX-License-Identifier: Apache-2.0
//
// A system that gives no more threads: the pool works with those there are, and what cannot do
// without one throws and may be called again.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "map_tier.h"
#include "no_more_threads.h"
#include "table/table.h"
#include "testing.h"
#include "tier/write_behind.h"
#include "tier_testing.h"
#include "util/thread_pool.h"

// Sanitizers start threads in ways of their own.
#ifndef MSREC_SANITIZED

namespace msrec {
namespace {

int64_t SumOfTasks(ThreadPool* pool) {
  std::atomic<int64_t> sum{0};
  pool->ParallelFor(100, [&](int64_t task) { sum += task; });
  return sum;
}

TEST(ThreadStart, ThePoolGoesOnWithTheThreadsThereAre) {
  std::unique_ptr<ThreadPool> pool;
  testing::internal::CaptureStderr();
  {
    const NoMoreThreads none;
    pool = std::make_unique<ThreadPool>(4);
    EXPECT_EQ(pool->num_threads(), 1);
    EXPECT_EQ(SumOfTasks(pool.get()), 4950);
    pool->SetNumThreads(3);
    EXPECT_EQ(pool->num_threads(), 1);
    EXPECT_EQ(SumOfTasks(pool.get()), 4950);
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("only 1 of 4 threads could be started"), std::string::npos) << said;
  EXPECT_EQ(said.find("of 3 threads"), std::string::npos) << "it is said once: " << said;
  pool->SetNumThreads(3);
  EXPECT_EQ(pool->num_threads(), 3);
  EXPECT_EQ(SumOfTasks(pool.get()), 4950);
}

// Some start, then the address space is used up: in a child, which ends with it.
TEST(ThreadStart, ThePoolGoesOnWithSome) {
  const pid_t child = fork();
  if (child == 0) {
    std::FILE* status = std::fopen("/proc/self/statm", "r");
    long pages = 0;
    if (std::fscanf(status, "%ld", &pages) != 1) _exit(2);
    std::fclose(status);
    constexpr rlim_t kStack = rlim_t{1} << 30;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStack);
    pthread_setattr_default_np(&attributes);
    const rlim_t most =
        static_cast<rlim_t>(pages) * sysconf(_SC_PAGESIZE) + 2 * kStack + kStack / 2;
    const rlimit limit{most, most};
    setrlimit(RLIMIT_AS, &limit);
    auto* pool = new ThreadPool(6);
    if (pool->num_threads() != 3) _exit(3);
    for (int i = 0; i < 100; ++i) {
      if (SumOfTasks(pool) != 4950) _exit(4);
    }
    delete pool;
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(ThreadStart, AnSsdTierReadsOnTheCallersThread) {
  const TestDirectory directory;
  SsdOptions options = SmallOptions(directory.path());
  options.row_bytes = 16;
  options.io_uring = false;
  options.background_gc = false;
  SsdTier tier(options);
  std::vector<int64_t> keys(2000);
  std::vector<char> rows(keys.size() * 16);
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] = static_cast<int64_t>(i);
    rows[i * 16] = static_cast<char>(i);
  }
  tier.Write(keys.data(), keys.size(), rows.data());
  tier.Flush();
  const NoMoreThreads none;
  std::vector<char> read(rows.size());
  const std::unique_ptr<bool[]> found(new bool[keys.size()]);
  tier.Read(keys.data(), keys.size(), read.data(), found.get());
  EXPECT_EQ(read, rows);
}

template <typename Fn>
void ExpectNoThread(Fn fn) {
  try {
    fn();
    FAIL() << "no exception";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("no thread could be started to"), std::string::npos)
        << error.what();
  }
}

TEST(ThreadStart, WhatNeedsAThreadThrows) {
  const TestDirectory directory;
  SsdOptions options = SmallOptions(directory.path());
  options.row_bytes = 16;
  {
    const NoMoreThreads none;
    ExpectNoThread([] { WriteBehind(std::make_shared<MapTier>(16), 1024); });
    ExpectNoThread([&] { SsdTier tier(options); });
  }
  SsdTier tier(options);  // the directory is not locked
  EXPECT_EQ(tier.size(), 0u);
}

TEST(ThreadStart, ATableIsAsItWasWhereItsTiersGetNoThread) {
  TableConfig config;
  config.name = "starved";
  config.dim = 4;
  Table table(config);
  CacheSettings settings;
  settings.host_rows = 100;
  settings.levels.push_back(
      {"ssd", [](size_t row_bytes, int) { return std::make_shared<MapTier>(row_bytes); }, -1});
  table.tiers().SetCache(settings);
  Rule rule;
  rule.kind = RuleKind::kAdagrad;
  table.BindOptimizer(rule);
  const std::vector<int64_t> ids = {1, 2, 3};
  const IdView view{ids.data(), ids.size(), true};
  std::vector<float> out(12);
  {
    const NoMoreThreads none;
    ExpectNoThread([&] { table.LookupTrain(view, {}, out.data()); });
    ExpectNoThread([&] { table.tiers().Prefetch(view); });
  }
  EXPECT_EQ(table.Size(), 0u);
  const int64_t fetch = table.tiers().Prefetch(view);
  table.tiers().PrefetchWait(fetch);
  table.LookupTrain(view, {}, out.data());
  EXPECT_EQ(table.Size(), 3u);
  table.tiers().PrefetchDone(fetch);
}

}  // namespace
}  // namespace msrec

#endif
