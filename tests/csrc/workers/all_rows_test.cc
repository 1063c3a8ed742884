// SPDX-License-Identifier: Apache-2.0
#include "workers/all_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "testing.h"
#include "workers/row_messages.h"
#include "workers/row_service.h"
#include "workers/thread_group.h"

namespace msrec {
namespace {

constexpr int kDim = 3;

// N workers as threads, each with its part of a table and a service.
struct Workers {
  explicit Workers(int size, PlacementKind kind, int64_t vocabulary = 0)
      : groups(MakeThreadGroups(size, 20.0)) {
    for (int r = 0; r < size; ++r) {
      TableConfig config;
      config.name = "t";
      config.dim = kDim;
      config.vocabulary = vocabulary;
      config.placement = {kind, static_cast<uint32_t>(size), static_cast<uint32_t>(r),
                          static_cast<uint32_t>(size - 1)};
      tables.push_back(std::make_shared<Table>(config));
      services.push_back(std::make_unique<RowService>(
          groups[r].get(),
          [this, r](const std::string& name) { return name == "t" ? tables[r] : nullptr; }));
      rows.emplace_back(tables[r].get(), groups[r].get());
    }
  }

  std::vector<std::unique_ptr<WorkerGroup>> groups;
  std::vector<std::shared_ptr<Table>> tables;
  std::vector<std::unique_ptr<RowService>> services;
  std::vector<AllRows> rows;
};

std::string ErrorOf(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

IdView View(const std::vector<int64_t>& keys) { return {keys.data(), keys.size(), true}; }

class AllRowsTest : public testing::TestWithParam<std::tuple<int, PlacementKind>> {};

TEST_P(AllRowsTest, AnyWorkerReadsAndChangesAsOneTableDoes) {
  const auto [size, kind] = GetParam();
  Workers workers(size, kind);
  TableConfig config;
  config.name = "t";
  config.dim = kDim;
  Table one(config);
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    AllRows& any = workers.rows[random() % size];
    std::vector<int64_t> keys(random() % 9);
    for (auto& key : keys) key = static_cast<int64_t>(random() % 40) - 5;
    std::vector<float> values(keys.size() * kDim), expected(keys.size() * kDim);
    for (auto& value : values) value = static_cast<float>(random() % 1000);
    switch (random() % 6) {
      case 0:
        any.Put(View(keys), values.data(), keys.size());
        one.Put(View(keys), values.data(), keys.size());
        break;
      case 1:
        EXPECT_EQ(any.Erase(View(keys)), one.Erase(View(keys)));
        break;
      case 2:
      case 3: {
        const bool insert = random() % 2 == 0;
        any.Get(View(keys), {}, insert, values.data());
        one.Get(View(keys), {}, insert, expected.data());
        EXPECT_EQ(values, expected);
        break;
      }
      case 4: {
        const auto ours = std::make_unique<bool[]>(keys.size());
        const auto theirs = std::make_unique<bool[]>(keys.size());
        any.Contains(View(keys), ours.get());
        one.Contains(View(keys), theirs.get());
        EXPECT_TRUE(std::equal(ours.get(), ours.get() + keys.size(), theirs.get()));
        EXPECT_EQ(any.Size(), one.Size());
        break;
      }
      default: {
        const ExportedRows some = any.ExportKeys(View(keys), false);
        ASSERT_EQ(some.n, keys.size());
        for (size_t i = 0; i < keys.size(); ++i) {
          EXPECT_EQ(some.keys[i], keys[i]);
          EXPECT_EQ(any.Explain(keys[i]).present, some.present[i]);
        }
      }
    }
  }
  for (AllRows& any : workers.rows) {
    std::vector<int64_t> ours = any.Keys(), theirs = one.Keys();
    const ExportedRows all = any.Export(true);
    EXPECT_TRUE(std::equal(ours.begin(), ours.end(), all.keys.get(), all.keys.get() + all.n));
    std::map<int64_t, std::vector<float>> by_key;
    for (size_t i = 0; i < all.n; ++i) {
      by_key[all.keys[i]].assign(all.values.get() + i * kDim, all.values.get() + (i + 1) * kDim);
    }
    EXPECT_EQ(by_key.size(), all.n);
    std::sort(ours.begin(), ours.end());
    std::sort(theirs.begin(), theirs.end());
    EXPECT_EQ(ours, theirs);
    const ExportedRows model = one.Export(false);
    for (size_t i = 0; i < model.n; ++i) {
      const std::vector<float> row(model.values.get() + i * kDim,
                                   model.values.get() + (i + 1) * kDim);
      EXPECT_EQ(by_key[model.keys[i]], row);
    }
  }
}

TEST_P(AllRowsTest, EveryWorkerInsertsByTheFilter) {
  const auto [size, kind] = GetParam();
  Workers workers(size, kind);
  TableConfig config;
  config.name = "t";
  config.dim = kDim;
  Table one(config);
  IdFilter filter;
  filter.has_padding = true;
  filter.padding_key = 3;
  filter.coefficient = 5;
  const std::vector<int64_t> keys = Range(0, 20), padding = {3};
  std::vector<float> ours(keys.size() * kDim), expected(keys.size() * kDim);
  workers.rows[0].Get(View(keys), filter, true, ours.data());
  one.Get(View(keys), filter, true, expected.data());
  EXPECT_EQ(ours, expected);
  for (int r = 0; r < size; ++r) {
    bool found = true;
    workers.tables[r]->Contains(View(padding), &found);
    EXPECT_FALSE(found) << r;
    for (const int64_t key : keys) {
      EXPECT_EQ(workers.rows[r].Explain(key).count, one.Explain(key).count) << r << " " << key;
    }
  }
}

TEST_P(AllRowsTest, AllWorkersAskAtTheSameTime) {
  const auto [size, kind] = GetParam();
  Workers workers(size, kind);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&workers, r, t] {
        AllRows& any = workers.rows[r];
        std::vector<float> values(20 * kDim, static_cast<float>(10 * r + t)), read(20 * kDim);
        for (int round = 0; round < 20; ++round) {
          std::vector<int64_t> keys;
          for (int64_t i = 0; i < 20; ++i) keys.push_back((r * 2 + t) * 1000 + round * 20 + i);
          any.Put(View(keys), values.data(), keys.size());
          any.Get(View(keys), {}, false, read.data());
          EXPECT_EQ(read, values);
        }
      });
    }
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(workers.rows[0].Size(), static_cast<size_t>(size) * 2 * 400);
}

INSTANTIATE_TEST_SUITE_P(Placements, AllRowsTest,
                         testing::Combine(testing::Values(2, 3),
                                          testing::Values(PlacementKind::kSharded,
                                                          PlacementKind::kOwner,
                                                          PlacementKind::kReplicated)));

TEST(AllRows, ErrorsOfAnotherWorkerNameIt) {
  Workers workers(2, PlacementKind::kOwner);  // worker 1 has the rows
  std::vector<float> out(kDim);
  const std::vector<int64_t> keys = {5};
  workers.tables[1]->Close();
  const std::string error = ErrorOf([&] { workers.rows[0].Get(View(keys), {}, true, out.data()); });
  EXPECT_NE(error.find("worker 1"), std::string::npos) << error;
  EXPECT_NE(error.find("closed"), std::string::npos) << error;
  workers.tables[1] = nullptr;
  const std::string gone = ErrorOf([&] { workers.rows[0].Size(); });
  EXPECT_NE(gone.find("is not there"), std::string::npos) << gone;
}

TEST(AllRows, TheServiceTakesRequestsOnly) {
  Workers workers(2, PlacementKind::kSharded);
  for (int tag = 0; tag < 4; ++tag) {
    workers.groups[0]->channel(Channel::kService).Send(1, tag, "text", 4);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // ten naps of the service
  for (int tag = 0; tag < 4; ++tag) {
    const auto found = workers.groups[1]->channel(Channel::kService).TryReceive(0, tag);
    ASSERT_TRUE(found.has_value()) << tag;
    EXPECT_EQ(found->data, "text");
  }
}

TEST(AllRows, IdsOutsideTheVocabularyChangeNothing) {
  Workers workers(2, PlacementKind::kSharded, 10);
  std::vector<float> values(3 * kDim, 1.0f), read(kDim);
  const std::vector<int64_t> keys = {1, 2, 10}, first = {1};
  EXPECT_THROW(workers.rows[0].Put(View(keys), values.data(), 3), std::invalid_argument);
  workers.rows[0].Get(View(first), {}, false, read.data());
  EXPECT_NE(read, std::vector<float>(kDim, 1.0f));
}

TEST(RowMessages, AreRefusedWhereTheyAreTooShort) {
  MessageWriter out;
  out.Put(uint64_t{1} << 60);
  MessageReader in(out.message());
  EXPECT_THROW(in.TakeString(), std::runtime_error);
  MessageReader again(out.message());
  EXPECT_THROW(again.TakeArray<float>(size_t{1} << 62), std::runtime_error);
}

}  // namespace
}  // namespace msrec
