// SPDX-License-Identifier: Apache-2.0
//
// Lookups in two parts, as owners do them over workers: prepared and dropped they change nothing;
// finished they do what lookups as a whole do, whatever comes between.
#include "table/core/prepared_lookups.h"

#include <gtest/gtest.h>

#include "map_tier.h"
#include "table/cache/settings.h"
#include "table_state.h"

namespace msrec {
namespace {

constexpr int kDim = 4;
constexpr uint64_t kDistinct = 600;

struct Tiered {
  Table table;

  Tiered(const TableConfig& config, int64_t host_rows) : table(config) {
    if (host_rows > 0) {
      CacheSettings settings;
      settings.host_rows = host_rows;
      settings.levels.push_back(
          {"ssd", [](size_t row_bytes, int) { return std::make_shared<MapTier>(row_bytes); }});
      table.tiers().SetCache(settings);
    }
    table.BindOptimizer(RuleOf(RuleKind::kAdagrad));
  }

  std::string Difference(Tiered* other) {
    std::string wrong;
    const TableState mine = TableState::Of(&table, &wrong);
    const std::string difference = mine.Difference(TableState::Of(&other->table, &wrong));
    return wrong + difference;
  }
};

TableConfig Config(Rng* rng) {
  TableConfig config = NormalConfig("prepared", kDim);
  if (rng->OneIn(2)) config.admission.threshold = 3;
  if (rng->OneIn(2)) config.eviction.max_idle_steps = 3;
  return config;
}

// Changes the table as another thread could between the parts of a lookup.
void Interfere(Table* table, Rng rng) {
  if (rng.OneIn(2)) return;
  const auto put = rng.Keys(10, kDistinct);
  table->Put(View(put), rng.Floats(put.size() * kDim).data(), put.size());
  table->Erase(View(rng.Keys(10, kDistinct)));
  // Others move down from host memory, where there is a tier.
  const auto read = rng.Keys(40, kDistinct);
  std::vector<float> out(read.size() * kDim);
  table->Get(View(read), {}, true, out.data());
}

// Calls `test(rng, first, second)` for each seed, with two empty tables of one random kind.
template <typename Body>
void WithTwoTables(uint64_t seeds, const Body& test) {
  for (uint64_t seed = 1; seed <= seeds / kFewer; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const TableConfig config = Config(&rng);
    const int64_t host_rows = rng.OneIn(2) ? 200 : 0;
    Tiered first(config, host_rows), second(config, host_rows);
    test(rng, first, second);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(PreparedLookups, DoWhatLookupsDoAsAWhole) {
  WithTwoTables(300, [](Rng& rng, Tiered& whole, Tiered& parts) {
    for (int64_t step = 1; step <= 6; ++step) {
      const size_t lookups = 1 + rng.Below(3);
      std::vector<std::vector<int64_t>> ids;
      for (size_t l = 0; l < lookups; ++l) ids.push_back(rng.Keys(30, kDistinct));
      const Rng between = Rng(rng.Bits());
      PreparedLookups prepared;
      for (const auto& each : ids) {
        parts.table.PrepareLookup(View(each), {}, false, &prepared);
      }
      Interfere(&parts.table, between);
      Interfere(&whole.table, between);
      std::vector<float> out(30 * kDim), expected(30 * kDim);
      for (const auto& each : ids) {
        const int64_t ticket = parts.table.FinishLookup(&prepared, out.data(), nullptr);
        const int64_t other = whole.table.LookupTrain(View(each), {}, expected.data());
        ASSERT_TRUE(SameBits(out.data(), expected.data(), out.size()));
        parts.table.Accumulate(ticket, out.data(), each.size());
        whole.table.Accumulate(other, out.data(), each.size());
      }
      parts.table.Step({0.1f, 0, 1, step, 0});
      whole.table.Step({0.1f, 0, 1, step, 0});
      ASSERT_EQ(parts.Difference(&whole), "");
    }
  });
}

TEST(PreparedLookups, ThatAreDroppedChangeNothing) {
  WithTwoTables(200, [](Rng& rng, Tiered& never, Tiered& dropped) {
    for (int64_t step = 1; step <= 4; ++step) {
      {
        PreparedLookups prepared;
        for (size_t l = 0; l < 2; ++l) {
          dropped.table.PrepareLookup(View(rng.Keys(30, kDistinct)), {}, rng.OneIn(2), &prepared);
        }
      }
      ASSERT_EQ(dropped.Difference(&never), "");
      const auto ids = rng.Keys(30, kDistinct);
      std::vector<float> out(ids.size() * kDim);
      for (Tiered* each : {&never, &dropped}) {
        const int64_t ticket = each->table.LookupTrain(View(ids), {}, out.data());
        each->table.Accumulate(ticket, out.data(), ids.size());
        each->table.Step({0.1f, 0, 1, step, 0});
      }
    }
  });
}

}  // namespace
}  // namespace msrec
