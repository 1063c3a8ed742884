// SPDX-License-Identifier: Apache-2.0
//
// Tables over workers where something fails on one of them: all throw, none waits for ever, and the
// next operation works.
#include <gtest/gtest.h>

#include "alloc_faults.h"
#include "map_tier.h"
#include "statistics.h"
#include "table/cache/settings.h"
#include "table_state.h"
#include "worker_testing.h"

namespace msrec {
namespace {

constexpr int kWorkers = 3;
constexpr int kDim = 4;

Rule Sgd() { return RuleOf(RuleKind::kSgd); }

std::vector<TableState> States(Workers* workers) {
  std::vector<TableState> states;
  for (int r = 0; r < workers->size(); ++r) {
    std::string wrong;
    states.push_back(TableState::Of(&workers->table(r).table(), &wrong));
    EXPECT_EQ(wrong, "");
  }
  return states;
}

void ExpectUnchanged(Workers* workers, const std::vector<TableState>& before) {
  const auto after = States(workers);
  for (size_t r = 0; r < after.size(); ++r) {
    EXPECT_EQ(after[r].Difference(before[r]), "") << "worker " << r;
  }
}

// A whole step on all workers, each with the ids 0 .. n - 1.
void Train(Workers* workers, int64_t step, int64_t n = 50) {
  workers->Run([&](int r) {
    const auto ids = Range(0, n);
    std::vector<float> out(ids.size() * kDim);
    ShardedTable& table = workers->table(r);
    const int64_t ticket = table.LookupTrain(View(ids), {}, out.data());
    table.Accumulate(ticket, std::vector<float>(ids.size() * kDim, 1.0f).data(), ids.size());
    ExchangeGradients({&table}, {false});
    table.Step({0.1f, 0, 1, step, 0});
  });
}

// The messages that workers throw when `failing` throws the given one.
void ExpectFailure(const std::vector<std::string>& errors, int failing,
                   const std::string& message) {
  for (size_t r = 0; r < errors.size(); ++r) {
    EXPECT_NE(errors[r].find(message), std::string::npos) << "worker " << r << ": " << errors[r];
    const bool other = errors[r].rfind("worker " + std::to_string(failing) + ": ", 0) == 0;
    EXPECT_EQ(other, static_cast<int>(r) != failing) << errors[r];
  }
}

TEST(FaultsOfWorkers, AnIdOutsideTheVocabularyFailsOnAllAndChangesNothing) {
  TableConfig config = NormalConfig("static", kDim);
  config.vocabulary = 100;
  Workers workers(kWorkers, {config}, Sgd());
  Train(&workers, 1);
  const auto before = States(&workers);
  const auto errors = workers.Try([&](int r) {
    const std::vector<int64_t> ids{1, 2, r == 1 ? 100 : 3};
    std::vector<float> out(ids.size() * kDim);
    workers.table(r).LookupTrain(View(ids), {}, out.data());
  });
  ExpectFailure(errors, 1, "id 100 at position 2 is outside the vocabulary");
  ExpectUnchanged(&workers, before);
  Train(&workers, 2);
}

TEST(FaultsOfWorkers, EachFailingWorkerThrowsItsOwnException) {
  Workers workers(kWorkers, {NormalConfig("unbound", kDim)}, Rule());
  workers.table(0).table().BindOptimizer(Sgd());
  const auto errors = workers.Try([&](int r) {
    const std::vector<int64_t> ids{1};
    std::vector<float> out(kDim);
    if (r == 0) {
      workers.table(r).LookupTrain(View(ids), {}, out.data());
    } else {
      EXPECT_THROW(workers.table(r).LookupTrain(View(ids), {}, out.data()), NoOptimizer);
    }
  });
  EXPECT_NE(errors[0].find("worker 1: table 'unbound': is looked up in training mode"),
            std::string::npos)
      << errors[0];
}

TEST(FaultsOfWorkers, ATierThatFailsAtOneOwnerFailsTheLookupOnAll) {
  Workers workers(kWorkers, {NormalConfig("tiered", kDim)}, Rule());
  std::vector<std::shared_ptr<MapTier>> tiers(kWorkers);
  for (int r = 0; r < kWorkers; ++r) {
    CacheSettings settings;
    settings.host_rows = 40;
    settings.levels.push_back({"ssd", [&, r](size_t row_bytes, int) {
                                 return tiers[r] = std::make_shared<MapTier>(row_bytes);
                               }});
    workers.table(r).table().tiers().SetCache(settings);
    workers.table(r).table().BindOptimizer(Sgd());
  }
  Train(&workers, 1, 90);
  workers.Run([&](int r) {
    const auto ids = Range(1000, 1090);
    std::vector<float> out(ids.size() * kDim);
    workers.table(r).LookupTrain(View(ids), {}, out.data());
    workers.table(r).DiscardGradients();
    workers.table(r).table().tiers().Flush();
  });
  const auto before = States(&workers);
  for (const bool train : {true, false}) {
    tiers[2]->FailWith([](const char* call) { return std::string(call) == "read"; });
    const auto errors = workers.Try([&](int r) {
      auto ids = Range(0, 60);
      const auto fresh = Range(5000, 5015);  // rows that owners would insert
      ids.insert(ids.end(), fresh.begin(), fresh.end());
      std::vector<float> out(ids.size() * kDim);
      if (train) {
        workers.table(r).LookupTrain(View(ids), {}, out.data());
      } else {
        workers.table(r).LookupEval(View(ids), {}, out.data());
      }
    });
    ExpectFailure(errors, 2, "read fails");
    tiers[2]->FailWith(nullptr);
    ExpectUnchanged(&workers, before);
    workers.Run([&](int r) { workers.table(r).DiscardGradients(); });
  }
  Train(&workers, 2, 90);
}

TEST(FaultsOfWorkers, MemoryThatRunsOutOnOneFailsOnAll) {
  for (const int failing : {0, 2}) {
    Workers workers(kWorkers, {NormalConfig("memory", kDim)}, Sgd());
    Train(&workers, 1);
    const auto before = States(&workers);
    const auto errors = workers.Try([&](int r) {
      const auto ids = Range(0, 40000);
      std::vector<float> out(ids.size() * kDim);
      if (r == failing) {
        const auto faults = AllocationFaults::Bytes(50000);
        workers.table(r).LookupTrain(View(ids), {}, out.data());
      } else {
        workers.table(r).LookupTrain(View(ids), {}, out.data());
      }
    });
    for (int r = 0; r < kWorkers; ++r) EXPECT_NE(errors[r], "");
    ExpectUnchanged(&workers, before);
    Train(&workers, 2, 40000);
  }
}

TEST(FaultsOfWorkers, DifferentOperationsAreNamed) {
  Workers workers(2, {NormalConfig("first", kDim), NormalConfig("second", kDim)}, Sgd());
  const auto errors = workers.Try([&](int r) {
    const std::vector<int64_t> ids{1};
    std::vector<float> out(kDim);
    workers.table(r, r).LookupTrain(View(ids), {}, out.data());
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("workers do different things"), std::string::npos) << error;
    EXPECT_NE(error.find("lookup of table 'first'"), std::string::npos) << error;
    EXPECT_NE(error.find("lookup of table 'second'"), std::string::npos) << error;
  }
}

TEST(FaultsOfWorkers, WhoWaitsInVainNamesItsOperation) {
  Workers workers(2, {NormalConfig("alone", kDim)}, Sgd(), 0.2);
  const auto errors = workers.Try([&](int r) {
    const std::vector<int64_t> ids{1};
    std::vector<float> out(kDim);
    if (r == 0) workers.table(r).LookupTrain(View(ids), {}, out.data());
  });
  EXPECT_NE(errors[0].find("to exchange training lookup of table 'alone'"), std::string::npos)
      << errors[0];
}

TEST(FaultsOfWorkers, AStepWithoutTheExchangeIsRefused) {
  Workers workers(2, {NormalConfig("early", kDim)}, Sgd());
  const auto errors = workers.Try([&](int r) {
    const std::vector<int64_t> ids{1};
    std::vector<float> out(kDim);
    ShardedTable& table = workers.table(r);
    const int64_t ticket = table.LookupTrain(View(ids), {}, out.data());
    table.Accumulate(ticket, out.data(), 1);
    EXPECT_THROW(table.Accumulate(ticket, out.data(), 1), std::runtime_error);
    table.Step({0.1f, 0, 1, 1, 0});
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("must be exchanged"), std::string::npos) << error;
  }
}

TEST(FaultsOfWorkers, GradientsOfAnotherShapeAreRefused) {
  Workers workers(2, {NormalConfig("shape", kDim)}, Sgd());
  workers.Run([&](int r) {
    const std::vector<int64_t> ids{1, 2};
    std::vector<float> out(2 * kDim);
    const int64_t ticket = workers.table(r).LookupTrain(View(ids), {}, out.data());
    EXPECT_THROW(workers.table(r).Accumulate(ticket, out.data(), 1), std::invalid_argument);
    EXPECT_THROW(workers.table(r).Accumulate(ticket + 1, out.data(), 2), std::runtime_error);
    workers.table(r).Accumulate(ticket, out.data(), 2);
  });
}

TEST(FaultsOfWorkers, ADeviceCacheIsForOneWorker) {
  TableConfig config = NormalConfig("device", kDim);
  config.placement.workers = 2;
  Table table(config);
  std::vector<float> values(13 * kDim);
  DeviceConfig device;
  device.rows = 10;
  try {
    table.device().Attach(device, values.data());
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("device_rows must be None"), std::string::npos);
  }
}

// ---------------------------------------------------------------- settings of the whole table

TEST(SharesOfWorkers, ACapacityIsOfAllWorkersTogether) {
  TableConfig config = NormalConfig("capacity", kDim);
  config.eviction.max_rows = 100;
  Workers workers(kWorkers, {config}, Sgd());
  for (int step = 1; step <= 4; ++step) Train(&workers, step, 600);
  size_t rows = 0;
  for (int r = 0; r < kWorkers; ++r) {
    const size_t own = workers.table(r).table().Size();
    EXPECT_LE(own, 34u);
    rows += own;
  }
  EXPECT_EQ(rows, 100u);
}

TEST(SharesOfWorkers, AStaticTableHasEachRowOnceAndOnlyThatSeenInMemory) {
  TableConfig config = NormalConfig("vocabulary", kDim);
  config.vocabulary = 5000;
  Table one(config);
  one.BindOptimizer(Sgd());
  Workers workers(kWorkers, {config}, Sgd());
  std::vector<int64_t> twice;
  auto expected = RowsByKey(one.Export(true), &twice);
  size_t rows = 0, in_memory = 0;
  for (int r = 0; r < kWorkers; ++r) {
    Table& table = workers.table(r).table();
    const auto own = RowsByKey(table.Export(true), &twice);
    rows += own.size();
    EXPECT_NEAR(static_cast<double>(own.size()), 5000.0 / kWorkers, 200.0);
    for (const auto& [key, row] : own) EXPECT_TRUE(row == expected.at(key));
  }
  EXPECT_EQ(rows, 5000u);
  EXPECT_TRUE(twice.empty());
  Train(&workers, 1, 300);
  for (int r = 0; r < kWorkers; ++r) {
    for (const auto& [name, value] : Named(workers.table(r).table().Stats())) {
      if (name == "inserted") in_memory += static_cast<size_t>(value);
    }
  }
  EXPECT_EQ(in_memory, 300u);
}

}  // namespace
}  // namespace msrec
