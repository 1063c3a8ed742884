// SPDX-License-Identifier: Apache-2.0
//
// Prefetching over workers: keys go to the owners of their rows, which read them ahead.
#include <gtest/gtest.h>

#include <set>

#include "map_tier.h"
#include "statistics.h"
#include "table/cache/settings.h"
#include "table/core/shard.h"
#include "table/core/step_lookups.h"
#include "worker_testing.h"

namespace msrec {
namespace {

constexpr int kWorkers = 3;
constexpr int kDim = 4;
constexpr int kHostRows = 60;
constexpr int kMostPrefetches = Pins::kMostBatches;  // of a table at a time

class Prefetching : public ::testing::TestWithParam<PlacementKind> {
 protected:
  Prefetching() {
    TableConfig config = NormalConfig("tiered", kDim);
    config.placement.kind = GetParam();
    config.placement.owner = 1;
    workers_ = std::make_unique<Workers>(kWorkers, std::vector<TableConfig>{config}, Rule());
    for (int r = 0; r < kWorkers; ++r) {
      ahead_.push_back(std::make_unique<TableExchange>(&workers_->group(r), Channel::kAhead));
      CacheSettings settings;
      settings.host_rows = kHostRows;
      settings.levels.push_back({"ssd", [this, r](size_t row_bytes, int) {
                                   return tiers_[r] = std::make_shared<MapTier>(row_bytes);
                                 }});
      table(r).table().tiers().SetCache(settings);
      table(r).table().BindOptimizer(RuleOf(RuleKind::kSgd));
    }
  }

  ShardedTable& table(int r) { return workers_->table(r); }

  // Looks up `each` ids of each worker, other ones on each, and ends the step; returns the rows.
  std::vector<std::vector<float>> LookUp(int64_t begin, int64_t each) {
    std::vector<std::vector<float>> rows(kWorkers);
    workers_->Run([&](int r) {
      const auto ids = Ids(r, begin, each);
      rows[r].resize(ids.size() * kDim);
      table(r).LookupTrain(View(ids), {}, rows[r].data());
      table(r).DiscardGradients();
    });
    return rows;
  }
  static std::vector<int64_t> Ids(int worker, int64_t begin, int64_t each) {
    return Range(begin + worker * each, begin + (worker + 1) * each);
  }
  double Stat(int r, const std::string& name) {
    double found = -1;
    for (const auto& [each, value] : Named(table(r).table().Stats())) {
      if (each == name) found = value;
    }
    return found;
  }

  std::unique_ptr<Workers> workers_;
  std::vector<std::unique_ptr<TableExchange>> ahead_;
  std::vector<std::shared_ptr<MapTier>> tiers_{kWorkers};
};

TEST_P(Prefetching, RowsAreThereBeforeTheLookupOfAnyWorker) {
  const auto first = LookUp(0, 10);
  for (int64_t begin = 100; begin < 1000; begin += 30) LookUp(begin, 10);  // the first go down
  std::vector<double> misses, prefetched;
  for (int r = 0; r < kWorkers; ++r) {
    misses.push_back(Stat(r, "host_misses"));
    prefetched.push_back(Stat(r, "prefetched_rows"));
  }
  std::vector<int64_t> numbers(kWorkers);
  workers_->Run([&](int r) {
    const auto ids = Ids(r, 0, 10);
    numbers[r] = table(r).Prefetch(ahead_[r].get(), View(ids));
    table(r).table().tiers().PrefetchWait(numbers[r]);
  });
  const auto again = LookUp(0, 10);
  for (int r = 0; r < kWorkers; ++r) table(r).table().tiers().PrefetchDone(numbers[r]);
  EXPECT_EQ(again, first);
  double rows = 0;
  for (int r = 0; r < kWorkers; ++r) {
    EXPECT_EQ(Stat(r, "host_misses"), misses[r]) << "worker " << r;
    rows += Stat(r, "prefetched_rows") - prefetched[r];
  }
  // Those that were still in the host are not read.
  EXPECT_GT(rows, 0);
  EXPECT_LE(rows, GetParam() == PlacementKind::kReplicated ? 30 * kWorkers : 30);
}

TEST_P(Prefetching, EachWorkerNotesItsOwnLookups) {
  LookUp(0, 10);
  for (int r = 0; r < kWorkers; ++r) {
    const auto ids = Ids(r, 0, 10);
    const std::vector<std::pair<uint64_t, size_t>> expected{{HashIds(View(ids)), ids.size()}};
    EXPECT_EQ(table(r).table().RecentLookups(), expected);
  }
}

TEST_P(Prefetching, OneThatCannotBeginFailsOnAllAndTheNextOneWorks) {
  LookUp(0, 10);
  workers_->Run([&](int r) {
    for (int i = 0; r == 1 && i <= kMostPrefetches; ++i) {
      try {
        table(1).table().tiers().Prefetch(View(Ids(1, 0, 1)));
      } catch (const std::invalid_argument&) {
        break;  // as many as there may be
      }
    }
  });
  const auto errors = workers_->Try([&](int r) {
    const auto ids = Ids(r, 0, 10);
    table(r).Prefetch(ahead_[r].get(), View(ids));
  });
  for (int r = 0; r < kWorkers; ++r) {
    EXPECT_NE(errors[r].find("release them with prefetch_done"), std::string::npos) << errors[r];
    EXPECT_EQ(errors[r].rfind("worker 1: ", 0) == 0, r != 1) << errors[r];
  }
  for (int64_t number = kMostPrefetches; number > 0; --number) {
    try {
      table(1).table().tiers().PrefetchDone(number);
      break;
    } catch (const std::invalid_argument&) {  // there never was that one
    }
  }
  workers_->Run([&](int r) {
    const auto ids = Ids(r, 0, 10);
    const int64_t number = table(r).Prefetch(ahead_[r].get(), View(ids));
    table(r).table().tiers().PrefetchWait(number);
    table(r).table().tiers().PrefetchDone(number);
  });
}

INSTANTIATE_TEST_SUITE_P(Placements, Prefetching,
                         ::testing::Values(PlacementKind::kSharded, PlacementKind::kOwner,
                                           PlacementKind::kReplicated));

}  // namespace
}  // namespace msrec
