// SPDX-License-Identifier: Apache-2.0
//
// Several threads at one table, as Python's threads do it: prefetch, training, evaluation, export.
// Run under ThreadSanitizer too.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "table/table.h"
#include "table_testing.h"
#include "testing.h"
#include "workers/registry.h"

namespace msrec {
namespace {

constexpr int kDim = 8;

TableConfig Config(const std::string& name) {
  TableConfig config;
  config.name = name;
  config.dim = kDim;
  config.eviction.max_idle_steps = 5;
  config.eviction.max_rows = 3000;
  config.initializer.a = 1.0f;
  return config;
}

void Start(Table* table) { table->BindOptimizer(RuleOf(RuleKind::kAdagrad)); }

void TrainSome(Table* table, uint64_t seed, int steps) {
  Rng rng(seed);
  for (int step = 1; step <= steps; ++step) {
    const auto ids = rng.Keys(rng.OneIn(2) ? 3000 : 50, 5000);
    std::vector<float> out(ids.size() * kDim);
    const int64_t ticket = table->LookupTrain(View(ids), {}, out.data());
    const auto grad = rng.Floats(ids.size() * kDim);
    try {
      table->Accumulate(ticket, grad.data(), ids.size());
    } catch (const std::runtime_error&) {
      // Another trainer took the step in between; its message says so.
    }
    table->Step({0.01f, 0, 1, step, 0});
  }
}

TEST(Concurrent, EverythingAtOnceOnOneTable) {
  Threads threads(3);
  Table table(Config("concurrent"));
  Start(&table);
  std::atomic<bool> done{false};
  std::vector<std::thread> helpers;
  helpers.emplace_back([&] {
    Rng rng(1);
    while (!done) {
      const auto ids = rng.Keys(2000, 5000);
      std::vector<float> out(ids.size() * kDim);
      table.LookupEval(View(ids), {}, out.data());
    }
  });
  helpers.emplace_back([&] {
    Rng rng(2);
    while (!done) {
      const auto ids = rng.Keys(100, 5000);
      const auto values = rng.Floats(ids.size() * kDim);
      table.Put(View(ids), values.data(), ids.size());
      table.Erase(View(ids));
      table.Stats();
    }
  });
  helpers.emplace_back([&] {
    uint64_t mark = table.changes().Mark();
    while (!done) {
      const ExportedRows rows = table.changes().ExportSince(mark, true);
      ASSERT_EQ(rows.dim, kDim);
      mark = table.changes().Mark();
      table.changes().ReleaseBefore(mark);
      table.Size();
    }
  });
  helpers.emplace_back([&] {
    table.eviction().Collect(true);
    while (!done) {
      for (const EvictedKey& evicted : table.eviction().Take()) table.Explain(evicted.key);
      table.clock().SetEventTime(int64_t{table.clock().time()} + 1);
      table.eviction().Evict(table.clock().step() % 2 == 0);
    }
  });
  std::vector<std::thread> trainers;
  for (int t = 0; t < 2; ++t) {
    trainers.emplace_back(
        [&, t] { TrainSome(&table, 10 + t, 100 / static_cast<int>(kFewer) + 10); });
  }
  for (auto& trainer : trainers) trainer.join();
  done = true;
  for (auto& helper : helpers) helper.join();
}

// Two tables do not wait for each other, and each has the bits it has alone.
TEST(Concurrent, TwoTablesAtOnceHaveTheBitsOfEachAlone) {
  Threads threads(3);
  std::vector<float> alone, together[2];
  const auto values = [](Table* table) {
    const ExportedRows rows = table->Export(false);
    return std::vector<float>(rows.values.get(), rows.values.get() + rows.n * kDim);
  };
  {
    Table table(Config("same"));
    Start(&table);
    TrainSome(&table, 5, 30);
    alone = values(&table);
  }
  Table a(Config("same")), b(Config("same"));
  Start(&a);
  Start(&b);
  std::thread other([&] { TrainSome(&b, 5, 30); });
  TrainSome(&a, 5, 30);
  other.join();
  EXPECT_TRUE(SameBits(values(&a), alone));
  EXPECT_TRUE(SameBits(values(&b), alone));
}

TEST(Concurrent, ClosingWhileOthersWorkIsAnErrorToThem) {
  Threads threads(2);
  for (int round = 0; round < 10; ++round) {
    const auto made = CreateTable(Config("closing"));
    Start(made->table.get());
    std::vector<std::thread> workers;
    std::atomic<int> closed{0};
    for (int t = 0; t < 3; ++t) {
      workers.emplace_back([&, t] {
        try {
          for (;;) TrainSome(FindTable(made->id)->table.get(), t, 3);
        } catch (const TableClosed&) {
          ++closed;
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    CloseTable(made->id);
    for (auto& worker : workers) worker.join();
    EXPECT_EQ(closed, 3);
  }
}

}  // namespace
}  // namespace msrec
