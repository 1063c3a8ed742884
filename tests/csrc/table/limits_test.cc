// SPDX-License-Identifier: Apache-2.0
//
// Limits as large as an int64 can be mean "no limit", and none overflows on its way.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "map_tier.h"
#include "table/table.h"
#include "table_testing.h"
#include "testing.h"

namespace msrec {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

TableConfig Config() { return NormalConfig("limits"); }

void Start(Table* table) { table->BindOptimizer(RuleOf(RuleKind::kSgd)); }

void Train(Table* table, const std::vector<int64_t>& ids) {
  std::vector<float> out(ids.size() * 4);
  table->LookupTrain(View(ids), {}, out.data());
  table->Step({0.1f, 0, 1, 1, 0});
}

TEST(Limits, OfCandidatesIsSharedOutExactly) {
  for (const int64_t most : {int64_t{16}, int64_t{17}, int64_t{31}, int64_t{100}, kMost - 15,
                             kMost - 14, kMost - 1, kMost}) {
    TableConfig config = Config();
    config.admission.threshold = 2;
    config.admission.max_candidates = most;
    Table table(config);
    Start(&table);
    const auto keys = Range(0, 1000);
    Train(&table, keys);
    EXPECT_EQ(table.admission().ExportCounters().size(),
              static_cast<size_t>(std::min<int64_t>(most, 1000)));
    if (most < 1000) continue;
    Train(&table, keys);
    EXPECT_EQ(table.Size(), 1000u) << "max_candidates = " << most;
  }
}

TEST(Limits, OfRowsBytesAndAges) {
  TableConfig config = Config();
  config.eviction.max_idle_steps = kMost / 4;
  config.eviction.max_rows = kMost / 4;
  config.eviction.max_bytes = kMost / 4;
  Table table(config);
  Start(&table);
  Train(&table, Range(0, 5000));
  table.eviction().Evict(true);
  EXPECT_EQ(table.Size(), 5000u);
  config.eviction.max_rows = kMost;
  EXPECT_THROW(Table{config}, std::invalid_argument);
}

TEST(Limits, OfTiers) {
  for (const bool by_rows : {true, false}) {
    Table table(Config());
    CacheSettings settings;
    (by_rows ? settings.host_rows : settings.host_bytes) = kMost;
    const auto open = [](size_t row_bytes, int) { return std::make_shared<MapTier>(row_bytes); };
    settings.levels.push_back({"remote", open, kMost});
    settings.levels.push_back({"ssd", open, -1});
    table.tiers().SetCache(settings);
    Start(&table);
    Train(&table, Range(0, 5000));
    table.tiers().Flush();
    Train(&table, Range(0, 6000));
    EXPECT_EQ(table.Export(true).n, 6000u);
    EXPECT_EQ(table.Size(), 6000u);
  }
}

TEST(Limits, OfASketchIsMemory) {
  TableConfig config = Config();
  config.admission.kind = AdmissionKind::kSketch;
  config.admission.threshold = 2;
  config.admission.sketch_bytes = kMost;
#ifndef MSREC_SANITIZED
  EXPECT_THROW(Table{config}, OutOfMemory);
#endif
  config.admission.sketch_bytes = 1024;
  Table table(config);
}

}  // namespace
}  // namespace msrec
