// SPDX-License-Identifier: Apache-2.0
//
// Static tables with a tier below host memory: rows in the tier that are due for eviction.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "map_tier.h"
#include "table/table.h"
#include "table_testing.h"

namespace msrec {
namespace {

constexpr int kDim = 4;

std::vector<int64_t> From(int64_t first, size_t n) {
  std::vector<int64_t> ids(n);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

void TrainOne(Table* table, const std::vector<int64_t>& ids) {
  std::vector<float> values(ids.size() * kDim);
  const int64_t ticket = table->LookupTrain(View(ids), {}, values.data());
  table->Accumulate(ticket, values.data(), ids.size());
  table->Step({1.0f, 0, 1, 1, 0});
}

// Evaluation copies a row due for eviction and its first value into one place; a sanitizer finds a
// write past the copies.
TEST(StaticRows, DueRowsInALowerTierReadTheirFirstValues) {
  TableConfig config = NormalConfig("static_rows", kDim);
  config.vocabulary = 64;
  config.eviction.max_idle_steps = 1;
  Table table(config);
  CacheSettings settings;
  settings.host_rows = 16;
  settings.levels.push_back(
      {"remote", [](size_t row_bytes, int) { return std::make_shared<MapTier>(row_bytes); }, -1});
  table.tiers().SetCache(std::move(settings));
  table.BindOptimizer(RuleOf(RuleKind::kSgd));
  const auto early = From(0, 16);
  std::vector<float> first(early.size() * kDim), now(early.size() * kDim);
  table.LookupEval(View(early), {}, first.data());
  TrainOne(&table, early);
  for (int64_t key = 16; key < 64; key += 16) TrainOne(&table, From(key, 16));
  table.LookupEval(View(early), {}, now.data());
  EXPECT_EQ(now, first);
}

TEST(StaticRows, ARecordedClearNamesTheRowsOfTheVocabularyAndNoOthers) {
  TableConfig config = NormalConfig("static_rows", kDim);
  config.vocabulary = 64;
  Table table(config);
  CacheSettings settings;
  settings.host_rows = 16;
  settings.levels.push_back(
      {"remote", [](size_t row_bytes, int) { return std::make_shared<MapTier>(row_bytes); }, -1});
  table.tiers().SetCache(std::move(settings));
  table.BindOptimizer(RuleOf(RuleKind::kSgd));
  TrainOne(&table, From(0, 16));
  const uint64_t mark = table.changes().Mark();
  table.Clear();
  const ExportedRows rows = table.changes().ExportSince(mark, false);
  std::vector<int64_t> keys(rows.keys.get(), rows.keys.get() + rows.n);
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(keys, From(0, 64));
}

}  // namespace
}  // namespace msrec
