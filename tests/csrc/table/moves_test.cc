// SPDX-License-Identifier: Apache-2.0
//
// Rows that a caller fetches from a device cache out of the host's memory.
#include <gtest/gtest.h>

#include <vector>

#include "table/table.h"

namespace msrec {
namespace {

TEST(TableDeviceMoves, RowsOfAnotherSizeAreRefusedAndNothingIsTakenOver) {
  constexpr int kDim = 3;
  TableConfig config;
  config.name = "t";
  config.dim = kDim;
  Table table(config);
  DeviceConfig cache;
  cache.rows = 8;
  cache.shared = false;
  table.device().Attach(cache, nullptr);
  Rule rule;
  rule.kind = RuleKind::kAdam;
  table.BindOptimizer(rule);
  const size_t width = rule.StateWidth(kDim);
  ASSERT_GT(width, 0u);

  const std::vector<int64_t> ids = {4, 7, -1, 9, 0};
  const IdView view{ids.data(), ids.size(), true};
  ASSERT_EQ(table.device().Prepare(view, {}).in_slots.size(), ids.size());
  std::vector<int32_t> slots(ids.size());
  StepInput input;
  input.step = 1;
  EXPECT_THROW(table.device().BeginStep(input), std::runtime_error) << "the lookup is to come";
  table.device().ReportGradient(table.device().LookupSlots(view, {}, nullptr, slots.data()));
  table.device().BeginStep(input);
  table.device().FinishStep();
  // Until the move is finished, the table has old values of the rows, which it does not give.
  const auto refused = [&] {
    EXPECT_THROW(table.Export(true), std::runtime_error);
    EXPECT_THROW(table.ExportParts(true, [](const ExportedRows&) {}), std::runtime_error);
    EXPECT_THROW(table.ExportKeys(view, true), std::runtime_error);
  };
  refused();
  const size_t n = table.device().FetchDirty().out_slots.size();
  ASSERT_EQ(n, ids.size());
  refused();

  // As large as is said, so that whoever reads on is seen to.
  const auto finish = [&](size_t value_count, size_t state_count) {
    const std::vector<float> values(value_count, 0.5f), states(state_count, 2.0f);
    table.device().FinishMove(values.data(), value_count, states.data(), state_count);
  };
  const size_t values = n * kDim, states = n * width;
  for (const size_t bad : {size_t{0}, values - 1, values + 1, values - kDim, values + kDim}) {
    EXPECT_THROW(finish(bad, states), std::invalid_argument) << bad;
  }
  for (const size_t bad : {size_t{0}, states - 1, states + 1, states - width, n}) {
    EXPECT_THROW(finish(values, bad), std::invalid_argument) << bad;
  }
  // The move can be finished still.
  finish(values, states);
  const ExportedRows rows = table.Export(true);
  ASSERT_EQ(rows.n, n);
  for (size_t i = 0; i < values; ++i) EXPECT_EQ(rows.values[i], 0.5f);
  for (size_t i = 0; i < states; ++i) EXPECT_EQ(rows.states[i], 2.0f);
}

// Nothing is left for the caller to move, and whatever happens to the memory then, rows are as they
// were.
TEST(TableDeviceMoves, OfSharedMemoryAreDoneByTheTable) {
  constexpr int kDim = 3;
  TableConfig config;
  config.name = "t";
  config.dim = kDim;
  Table table(config);
  std::vector<float> values((8 + 3) * kDim);
  DeviceConfig cache;
  cache.rows = 8;
  table.device().Attach(cache, values.data());
  Rule rule;
  rule.kind = RuleKind::kSgd;
  table.BindOptimizer(rule);
  const std::vector<int64_t> ids = {4, 7, -1};
  const IdView view{ids.data(), ids.size(), true};
  std::vector<int32_t> slots(ids.size());
  const int64_t ticket = table.device().LookupSlots(view, {}, nullptr, slots.data());
  const std::vector<float> grad(ids.size() * kDim, 1.0f);
  table.Accumulate(ticket, grad.data(), ids.size());
  StepInput input;
  input.learning_rate = 0.5f;
  input.step = 1;
  table.Step(input);
  EXPECT_TRUE(table.device().FetchDirty().out_slots.empty());
  values.assign(values.size(), 9.0f);
  const ExportedRows rows = table.Export(true);
  ASSERT_EQ(rows.n, ids.size());
  for (size_t i = 0; i < ids.size() * kDim; ++i) EXPECT_EQ(rows.values[i], -0.5f);
}

}  // namespace
}  // namespace msrec
