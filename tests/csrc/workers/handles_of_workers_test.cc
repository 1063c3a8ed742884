// SPDX-License-Identifier: Apache-2.0
//
// Training by handle over workers.
#include <gtest/gtest.h>

#include "worker_testing.h"

namespace msrec {
namespace {

constexpr int kDim = 3;

struct Given {
  std::vector<int64_t> handles;
  std::vector<float> rows;
};

Given LookUp(ShardedTable* table, const std::vector<int64_t>& ids) {
  Given given{std::vector<int64_t>(2 * ids.size(), -1), std::vector<float>(ids.size() * kDim)};
  IdFilter filter;
  filter.has_padding = true;
  filter.padding_key = 5;
  table->LookupWithHandles(View(ids), filter, given.rows.data(), given.handles.data());
  return given;
}

std::vector<TableConfig> Configs() {
  TableConfig admitted = NormalConfig("admitted", kDim);
  admitted.admission.threshold = 3;
  return {NormalConfig("plain", kDim), admitted};
}

TEST(HandlesOfWorkers, TrainTheRowsOfAllWorkers) {
  constexpr int kWorkers = 3;
  Workers workers(kWorkers, Configs(), RuleOf(RuleKind::kSgd));
  std::vector<std::unique_ptr<Table>> one;
  for (const TableConfig& config : Configs()) {
    one.push_back(std::make_unique<Table>(config));
    one.back()->BindOptimizer(RuleOf(RuleKind::kSgd));
  }
  Rng rng(4);
  for (int64_t step = 1; step <= 6; ++step) {
    const std::vector<int64_t> samples{10, 0, 30};
    workers.BeginStep(step, samples);
    for (size_t t = 0; t < one.size(); ++t) {
      std::vector<std::vector<int64_t>> ids(kWorkers);
      std::vector<std::vector<float>> grads(kWorkers);
      std::vector<int64_t> all;
      std::vector<float> all_grads;
      for (int r = 0; r < kWorkers; ++r) {
        ids[r] = rng.Keys(r == 1 ? 20 : 200, 60);
        grads[r] = rng.Floats(ids[r].size() * kDim, -0.1f, 0.1f);
        if (r == 1) continue;  // has no samples
        all.insert(all.end(), ids[r].begin(), ids[r].end());
        for (const float g : grads[r]) all_grads.push_back(samples[r] / 40.0f * g);
      }
      std::vector<float> out(all.size() * kDim);
      std::vector<int64_t> handles(2 * all.size());
      IdFilter filter;
      filter.has_padding = true;
      filter.padding_key = 5;
      one[t]->LookupWithHandles(View(all), filter, out.data(), handles.data());
      one[t]->AccumulateByHandle(handles.data(), all.size(), all_grads.data());
      std::vector<float> read[kWorkers];
      workers.Run([&](int r) {
        ShardedTable& table = workers.table(r, t);
        const Given given = LookUp(&table, ids[r]);
        read[r] = given.rows;
        table.AccumulateByHandle(given.handles.data(), ids[r].size(), grads[r].data());
        EXPECT_NEAR(table.GradientSquaredNorm(), one[t]->GradientSquaredNorm(), 1e-5);
        table.Step({0.1f, 0, 1, step, 0});
      });
      one[t]->Step({0.1f, 0, 1, step, 0});
      read[0].insert(read[0].end(), read[2].begin(), read[2].end());
      for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(read[0][i], out[i], 1e-6);
    }
  }
  for (size_t t = 0; t < one.size(); ++t) {
    std::vector<int64_t> twice;
    const auto expected = RowsByKey(one[t]->Export(false), &twice);
    size_t rows = 0;
    for (int r = 0; r < kWorkers; ++r) {
      for (const auto& [key, row] : RowsByKey(workers.table(r, t).table().Export(false), &twice)) {
        ++rows;
        ASSERT_TRUE(expected.count(key) != 0);
        for (int j = 0; j < kDim; ++j) ASSERT_NEAR(row.value[j], expected.at(key).value[j], 1e-6);
      }
    }
    EXPECT_EQ(rows, expected.size());
    EXPECT_TRUE(twice.empty());
  }
}

TEST(HandlesOfWorkers, AHandleOfNoRowOfNowFailsOnAll) {
  Workers workers(2, Configs(), RuleOf(RuleKind::kSgd));
  std::vector<Given> given(2);
  const std::vector<int64_t> ids{1, 2, 3, 4};
  const std::vector<float> grad(ids.size() * kDim, 1.0f);
  workers.Run([&](int r) { given[r] = LookUp(&workers.table(r), ids); });
  const auto refused = [&](const std::string& message) {
    const auto errors = workers.Try([&](int r) {
      workers.table(r).AccumulateByHandle(given[r].handles.data(), ids.size(), grad.data());
    });
    for (const std::string& error : errors) {
      EXPECT_NE(error.find(message), std::string::npos) << error;
    }
  };
  const int64_t good = given[1].handles[2];
  given[1].handles[2] ^= 1 << 20;
  refused("names no row of now");
  given[1].handles[2] = good ^ int64_t{1} << 50;
  refused("was made up");
  given[1].handles[2] = good;
  workers.Run([&](int r) {
    workers.table(r).table().Erase(View(ids));
    workers.table(r).DiscardGradients();
  });
  refused("names no row of now");
}

}  // namespace
}  // namespace msrec
