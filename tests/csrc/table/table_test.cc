// SPDX-License-Identifier: Apache-2.0
//
// Promises of the table that a life of random operations (table_model_test.cc) does not reach.
#include "table/table.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>

#include "alloc_faults.h"
#include "rules.h"
#include "statistics.h"
#include "table/core/table_core.h"
#include "table/core/victims.h"
#include "table_testing.h"
#include "testing.h"
#include "workers/registry.h"

namespace msrec {
namespace {

TableConfig Config(int dim = 4) { return NormalConfig("t", dim); }

Rule Sgd() { return RuleOf(RuleKind::kSgd); }

double Stat(Table* table, const std::string& wanted) {
  for (const auto& [name, value] : Named(table->Stats())) {
    if (name == wanted) return value;
  }
  ADD_FAILURE() << "no statistic " << wanted;
  return -1.0;
}

std::vector<float> Read(Table* table, const std::vector<int64_t>& ids) {
  std::vector<float> out(ids.size() * table->dim());
  table->LookupEval(View(ids), {}, out.data());
  return out;
}

int64_t Train(Table* table, const std::vector<int64_t>& ids) {
  std::vector<float> out(ids.size() * table->dim());
  return table->LookupTrain(View(ids), {}, out.data());
}

// ---------------------------------------------------------------- first values

TEST(Table, AFirstValueIsAFunctionOfSeedNameAndKey) {
  Rng rng(1);
  const auto keys = rng.Keys(5000, 4000);
  std::vector<int64_t> backwards(keys.rbegin(), keys.rend());
  Table one(Config()), other(Config());
  one.BindOptimizer(Sgd());
  other.BindOptimizer(Sgd());
  Train(&one, keys);
  for (size_t i = 0; i < backwards.size(); i += 100) {
    Train(&other, {backwards.begin() + i, backwards.begin() + i + 100});
  }
  const auto values = Read(&one, keys);
  EXPECT_TRUE(SameBits(values, Read(&other, keys)));
  TableConfig renamed = Config();
  renamed.name = "u";
  TableConfig reseeded = Config();
  reseeded.seed = 1;
  for (const TableConfig& config : {renamed, reseeded}) {
    Table third(config);
    third.BindOptimizer(Sgd());
    Train(&third, keys);
    EXPECT_FALSE(SameBits(values, Read(&third, keys)));
  }
}

// Rows of a static table that no lookup has asked for yet.
TEST(Table, AWorkerExportsItsUnseenRowsWithTheirFirstValues) {
  TableConfig config = Config();
  config.vocabulary = 200;
  Table whole(config);
  config.placement.workers = 2;
  std::vector<int64_t> keys;
  for (const int64_t key : Range(0, config.vocabulary)) {
    if (config.placement.Owns(key)) keys.push_back(key);
  }
  ASSERT_GT(keys.size(), 50u);
  Table part(config);
  for (Table* table : {&whole, &part}) table->BindOptimizer(Sgd());
  const ExportedRows rows = part.ExportKeys(View(keys), true);
  const ExportedRows expected = whole.ExportKeys(View(keys), true);
  ASSERT_EQ(rows.n, keys.size());
  for (size_t i = 0; i < rows.n; ++i) {
    EXPECT_TRUE(rows.present[i]);
    EXPECT_TRUE(RowAt(rows, i) == RowAt(expected, i)) << keys[i];
  }
}

TEST(Table, AnEvictedKeyComesBackAsNew) {
  TableConfig config = Config();
  config.eviction.max_idle_steps = 2;
  Table table(config);
  Rule rule;
  rule.kind = RuleKind::kAdam;
  table.BindOptimizer(rule);
  const int64_t ticket = Train(&table, {7});
  const auto first = Read(&table, {7});
  const std::vector<float> grad(4, 1.0f);
  table.Accumulate(ticket, grad.data(), 1);
  table.Step({0.1f, 0, 1, 1, 0});
  EXPECT_FALSE(SameBits(first, Read(&table, {7})));
  for (int step = 2; step <= 3; ++step) table.Step({0.1f, 0, 1, step, 0});
  EXPECT_TRUE(SameBits(Read(&table, {7}), std::vector<float>(4)));
  EXPECT_EQ(table.Size(), 0u);
  Train(&table, {7});
  EXPECT_TRUE(SameBits(first, Read(&table, {7})));
  const ExportedRows rows = table.Export(true);
  for (int j = 0; j < 8; ++j) EXPECT_EQ(rows.states[j], 0.0f);
  EXPECT_EQ(rows.counts[0], 1u);
}

// ---------------------------------------------------------------- gradients

// Between a lookup and its step, rows may go and others may take their places in memory.
TEST(Table, ErasedBetweenLookupAndStep) {
  for (const int threads : {1, 3}) {
    Threads scope(threads);
    Table table(Config());
    table.BindOptimizer(Sgd());
    std::vector<int64_t> keys(3000), others(3000);
    for (size_t i = 0; i < keys.size(); ++i) {
      keys[i] = static_cast<int64_t>(i);
      others[i] = static_cast<int64_t>(i) + 1000000;
    }
    const int64_t ticket = Train(&table, keys);
    ASSERT_EQ(table.Erase(View(keys)), keys.size());
    std::vector<float> out(others.size() * 4);
    table.Get(View(others), {}, true, out.data());  // in the same memory
    const std::vector<float> grad(keys.size() * 4, 1.0f);
    table.Accumulate(ticket, grad.data(), keys.size());
    table.Step({1.0f, 0, 1, 1, 0});
    EXPECT_TRUE(SameBits(out, Read(&table, others))) << "other keys are not trained";
    EXPECT_EQ(table.Size(), others.size());
  }
}

TEST(Table, GradientsComeInAnyOrderToTheSameBits) {
  Rng rng(3);
  std::vector<std::vector<int64_t>> ids;
  std::vector<std::vector<float>> grads;
  for (int l = 0; l < 5; ++l) {
    ids.push_back(rng.Keys(2000, 500));
    grads.push_back(rng.Floats(2000 * 4));
  }
  std::vector<int> order = {0, 1, 2, 3, 4};
  std::vector<float> expected;
  do {
    if (order[0] * 7 + order[2] > 20 && order[1] != 0) continue;  // a part of the 120 is plenty
    Table table(Config());
    table.BindOptimizer(Sgd());
    std::vector<int64_t> tickets;
    for (const auto& batch : ids) tickets.push_back(Train(&table, batch));
    for (const int l : order) table.Accumulate(tickets[l], grads[l].data(), 2000);
    table.Step({0.1f, 0, 1, 1, 0});
    const auto values = Read(&table, ids[0]);
    if (expected.empty()) expected = values;
    ASSERT_TRUE(SameBits(values, expected));
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Table, ForwardPassesAloneDoNotPileUp) {
  Table table(Config());
  table.BindOptimizer(Sgd());
  for (int i = 0; i < 3000; ++i) Train(&table, {i, i + 1});
  const int64_t ticket = Train(&table, {1, 2, 3});
  EXPECT_LT(Stat(&table, "buffer_bytes"), 4e6);
  const std::vector<float> grad(12, 1.0f);
  table.Accumulate(ticket, grad.data(), 3);
  table.Step({0.1f, 0, 1, 1, 0});
}

TEST(Table, WithoutAnOptimizerTrainingIsAnError) {
  Table table(Config());
  float out[4];
  const int64_t id = 1;
  EXPECT_THROW(table.LookupTrain({&id, 1, true}, {}, out), NoOptimizer);
  const int64_t offset = 0;
  EXPECT_THROW(
      table.PoolTrain({&id, 1, true}, {}, {{&offset, 1, true}, nullptr, Combiner::kSum}, out),
      NoOptimizer);
  EXPECT_THROW(table.Step({0.1f, 0, 1, 1, 0}), NoOptimizer);
  EXPECT_THROW(table.CheckLookup({&id, 1, true}, {}, true), NoOptimizer);
  EXPECT_NO_THROW(table.CheckLookup({&id, 1, true}, {}, false));
  EXPECT_EQ(table.Size(), 0u);
}

TEST(Table, OnlyFtrlRefusesALearningRateOfZero) {
  for (const RuleKind kind : kEveryRuleKind) {
    Table table(Config());
    table.BindOptimizer(RuleOf(kind));
    Train(&table, {1});
    if (kind != RuleKind::kFtrl) {
      EXPECT_NO_THROW(table.Step({0.0f, 0, 1, 1, 0})) << static_cast<int>(kind);
      continue;
    }
    EXPECT_THROW(table.Step({0.0f, 0, 1, 1, 0}), std::invalid_argument);
    EXPECT_NO_THROW(table.Step({0.1f, 0, 1, 1, 0})) << "the same step";
  }
}

// ---------------------------------------------------------------- whole tables

TEST(Table, PartsOfAnExportAreTheExport) {
  Table table(Config());
  table.BindOptimizer(RuleOf(RuleKind::kAdam));
  const int64_t ticket = Train(&table, Range(0, 3000));
  const std::vector<float> grad = Rng(1).Floats(3000 * 4);
  table.Accumulate(ticket, grad.data(), 3000);
  table.Step({0.1f, 0, 1, 1, 0});
  std::vector<int64_t> twice;
  const auto expected = RowsByKey(table.Export(true), &twice);
  std::map<int64_t, ExportedRow> rows;
  table.ExportParts(true, [&](ExportedRows part) { rows.merge(RowsByKey(part, &twice)); });
  EXPECT_EQ(expected.size(), 3000u);
  EXPECT_TRUE(rows == expected);
  EXPECT_TRUE(twice.empty());
}

TEST(Table, TheNormOfARowIsOfAllItsNumbers) {
  for (const int dim : {2, 300}) {
    TableConfig config = Config(dim);
    config.eviction.min_norm = 2.0f;
    Table table(config);
    table.BindOptimizer(Sgd());
    for (const int at : {0, dim - 1}) {
      std::vector<float> value(dim);
      value[at] = 3.0f;
      table.Put(View({at}), value.data(), 1);
      EXPECT_EQ(table.Explain(at).norm, 3.0) << at;
    }
    table.eviction().Evict(true);
    EXPECT_EQ(table.Size(), 2u);
  }
}

// New rules on a trigger wait for their first trigger, as those do that a table begins with.
TEST(Table, RulesOnATriggerEvictNothingBeforeIt) {
  Table table(Config());
  table.BindOptimizer(Sgd());
  Train(&table, Range(0, 100));
  Eviction eviction;
  eviction.max_rows = 40;
  eviction.on_trigger = true;
  table.eviction().Set(eviction);
  for (int step = 1; step <= 3; ++step) table.Step({0.1f, 0, 1, step, 0});
  EXPECT_EQ(table.Size(), 100u);
  table.eviction().Evict(false);
  table.Step({0.1f, 0, 1, 4, 0});
  EXPECT_EQ(table.Size(), 40u);
}

// A slice of 64 rows of each shard a step, until the triggered eviction has seen all rows.
TEST(Table, ATriggeredEvictionGoesOnUntilItsEnd) {
  TableConfig config = Config();
  config.eviction.min_norm = 1e9f;
  config.eviction.on_trigger = true;
  Table table(config);
  table.BindOptimizer(Sgd());
  Train(&table, Range(0, 5000));
  table.eviction().Evict(false);
  int step = 0;
  while (step < 2) table.Step({0.1f, 0, 1, ++step, 0});
  EXPECT_EQ(table.Size(), 5000u - 2 * 16 * 64);
  while (step < 10) table.Step({0.1f, 0, 1, ++step, 0});
  EXPECT_EQ(table.Size(), 0u);
}

// ---------------------------------------------------------------- growth and memory

TEST(Table, GrowsToAMillionRowsAndKeepsThem) {
  Threads threads(3);
  Table table(Config(2));
  table.BindOptimizer(Sgd());
  const size_t n = 1000000 / kFewer, batch = 20000;
  std::vector<int64_t> keys(batch);
  for (size_t first = 0; first < n; first += batch) {
    for (size_t i = 0; i < batch; ++i) keys[i] = static_cast<int64_t>(Mix64(first + i));
    Train(&table, keys);
    table.DiscardGradients();
  }
  EXPECT_EQ(table.Size(), n);
  EXPECT_EQ(Stat(&table, "inserted"), static_cast<double>(n));
  const double index = Stat(&table, "index_bytes") / static_cast<double>(n);
  if (kFewer == 1) EXPECT_LT(index, 10.0);
  std::vector<float> first_value(2);
  for (size_t i = 0; i < n; i += 999) {
    const auto key = static_cast<int64_t>(Mix64(i));
    FindKernels("base")->initialize(table.config().initializer, key, 2, first_value.data());
    ASSERT_TRUE(SameBits(Read(&table, {key}), first_value));
  }
}

TEST(Table, ErasedMemoryIsUsedAgain) {
  Table table(Config());
  table.BindOptimizer(Sgd());
  double bytes = 0.0;
  for (int64_t round = 0; round < 20; ++round) {
    std::vector<int64_t> keys(5000);
    for (size_t i = 0; i < keys.size(); ++i) {
      keys[i] = round * 5000 + static_cast<int64_t>(i);
    }
    Train(&table, keys);
    ASSERT_EQ(table.Erase(View(keys)), keys.size());
    const double now = Stat(&table, "row_bytes") + Stat(&table, "index_bytes");
    if (round == 5) bytes = now;
    if (round > 5) ASSERT_LE(now, 1.5 * bytes);
  }
}

// A batch that has one key a million times is one row.
TEST(Table, AHotKeyDoesNotReserveMemoryForEachOccurrence) {
  Table table(Config(64));
  table.BindOptimizer(Sgd());
  Train(&table, std::vector<int64_t>(300000, 5));
  EXPECT_LT(Stat(&table, "row_bytes"), 4e6);
}

TEST(Table, TheSweepKeepsUpWithWhatIsCounted) {
  TableConfig config = Config();
  config.admission.threshold = 1000;
  config.eviction.max_idle_steps = 1;
  Table table(config);
  table.BindOptimizer(Sgd());
  std::vector<int64_t> keys(1500000 / kFewer);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
  Train(&table, keys);
  EXPECT_EQ(Stat(&table, "candidates"), static_cast<double>(keys.size()));
  for (int step = 1; step <= 260; ++step) table.Step({0.1f, 0, 1, step, 0});
  EXPECT_EQ(Stat(&table, "candidates"), 0.0) << "the whole shard comes round every 256 steps";
}

TEST(Table, VictimsOfATableWithoutRowsAreFew) {
  TableCore core(Config());
  SampleCandidates(core, 10, [](Shard*, size_t n, VictimCandidates*) { EXPECT_EQ(n, 1u); });
}

// Whichever allocation fails, of any thread.
TEST(Table, ADigestThatDidNotFitTakesNoMemory) {
  bool kept = false;
  for (size_t nth = 1; !kept; ++nth) {
    Table table(Config());
    table.BindOptimizer(Sgd());
    table.changes().Mark();
    Train(&table, {1, 2, 3, 400, 500, 600});
    try {
      const AllocationFaults faults = AllocationFaults::NthOfAllThreads(nth);
      table.changes().KeepDigest();
      kept = true;
    } catch (const OutOfMemory&) {
    }
    EXPECT_EQ(Stat(&table, "digest_bytes") > 0.0, kept) << nth;
  }
}

#ifndef MSREC_SANITIZED
// In a child whose memory is limited: a batch for which there is no room changes nothing.
TEST(Table, OutOfMemoryLeavesTheTableAsItWas) {
  const pid_t child = fork();
  if (child == 0) {
    Table table(Config(8192));
    table.BindOptimizer(Sgd());
    std::vector<int64_t> few(100), many(40000);
    for (size_t i = 0; i < few.size(); ++i) few[i] = static_cast<int64_t>(i);
    for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int64_t>(i) + 50;
    Train(&table, few);
    const auto before = Read(&table, few);
    rlimit before_it;
    if (getrlimit(RLIMIT_AS, &before_it) != 0) _exit(2);
    const rlimit limit{size_t{1} << 30, before_it.rlim_max};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
    try {
      RowArrays rows;
      rows.keys = many.data();
      table.Import(many.size(), rows, 0);
      _exit(3);
    } catch (const OutOfMemory&) {
    }
    if (setrlimit(RLIMIT_AS, &before_it) != 0) _exit(2);
    if (table.Size() != few.size()) _exit(4);
    if (!SameBits(before, Read(&table, few))) _exit(5);
    Train(&table, few);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}
#endif

// ---------------------------------------------------------------- bad input

TEST(Table, RefusesABadConfiguration) {
  const auto refused = [](const auto& change) {
    TableConfig config = Config();
    change(&config);
    EXPECT_THROW(Table table(config), std::invalid_argument);
  };
  refused([](TableConfig* c) { c->dim = 0; });
  refused([](TableConfig* c) { c->dim = -1; });
  refused([](TableConfig* c) { c->dim = 8193; });
  refused([](TableConfig* c) { c->vocabulary = -1; });
  refused([](TableConfig* c) { c->vocabulary = (int64_t{1} << 35) + 1; });
  refused([](TableConfig* c) { c->placement.workers = Placement::kMostWorkers + 1; });
  refused([](TableConfig* c) { c->precision.state = NumberType::kFloat16; });
  refused([](TableConfig* c) { c->precision.accumulator = NumberType::kFloat16; });
  refused([](TableConfig* c) { c->admission.threshold = -2; });
  refused([](TableConfig* c) { c->admission.threshold = int64_t{1} << 30; });
  refused([](TableConfig* c) { c->eviction.max_idle_steps = 0; });
  refused([](TableConfig* c) { c->eviction.max_idle_steps = -2; });
}

TEST(Table, MessagesNameTheTable) {
  Table table(Config());
  try {
    table.admission().SetThreshold(-7);
    FAIL();
  } catch (const std::invalid_argument& e) {
    EXPECT_NE(std::string(e.what()).find("'t'"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("-7"), std::string::npos) << e.what();
  }
}

TEST(Table, AReleasedMarkIsRefused) {
  Table table(Config());
  table.BindOptimizer(Sgd());
  const uint64_t one = table.changes().Mark();
  Train(&table, {1, 2});
  const uint64_t two = table.changes().Mark();
  Train(&table, {3});
  EXPECT_EQ(table.changes().ExportSince(one, false).n, 3u);
  EXPECT_EQ(table.changes().ExportSince(two, false).n, 1u);
  table.changes().ReleaseBefore(two);
  EXPECT_THROW(table.changes().ExportSince(one, false), std::invalid_argument);
  EXPECT_EQ(table.changes().ExportSince(two, false).n, 1u);
  table.changes().ReleaseBefore(0);
  EXPECT_THROW(table.changes().ExportSince(two, false), std::invalid_argument);
  const uint64_t three = table.changes().Mark();
  EXPECT_GT(three, two);
  EXPECT_THROW(table.changes().ExportSince(two, false), std::invalid_argument);
  EXPECT_EQ(table.changes().ExportSince(three, false).n, 0u);
}

TEST(Table, AfterCloseEverythingSaysSo) {
  Table table(Config());
  table.BindOptimizer(Sgd());
  const int64_t ticket = Train(&table, {1});
  table.Close();
  table.Close();
  const float grad[4] = {};
  EXPECT_THROW(Read(&table, {1}), TableClosed);
  EXPECT_THROW(Train(&table, {1}), TableClosed);
  EXPECT_THROW(table.Accumulate(ticket, grad, 1), TableClosed);
  EXPECT_THROW(table.Step({0.1f, 0, 1, 1, 0}), TableClosed);
  EXPECT_THROW(table.Size(), TableClosed);
  EXPECT_THROW(table.Export(true), TableClosed);
  EXPECT_THROW(table.Stats(), TableClosed);
  EXPECT_THROW(table.changes().Mark(), TableClosed);
}

// ---------------------------------------------------------------- registry

TEST(Registry, NumbersAreNeverReusedAndNamesAre) {
  TableConfig config = Config();
  config.name = "registered";
  const auto one = CreateTable(config);
  EXPECT_EQ(FindTable(one->id)->table, one->table);
  EXPECT_THROW(CreateTable(config), std::invalid_argument);
  CloseTable(one->id);
  CloseTable(one->id);
  EXPECT_THROW(FindTable(one->id), TableClosed);
  const auto two = CreateTable(config);
  EXPECT_NE(two->id, one->id);
  EXPECT_THROW(FindTable(one->id), TableClosed);
  EXPECT_THROW(one->table->Size(), TableClosed);
  CloseTable(two->id);
  EXPECT_THROW(FindTable(123456789), std::invalid_argument);
  config.name = "";
  EXPECT_THROW(CreateTable(config), std::invalid_argument);
  config.name = "bad";
  config.dim = 0;
  EXPECT_THROW(CreateTable(config), std::invalid_argument);
  config.dim = 1;  // the name is free after a failure
  CloseTable(CreateTable(config)->id);
}

}  // namespace
}  // namespace msrec
