// SPDX-License-Identifier: Apache-2.0
//
// Tables over N workers against one table that gets the concatenation of their batches.
#include "workers/sharded_table.h"

#include <gtest/gtest.h>

#include <cmath>

#include "worker_testing.h"

namespace msrec {
namespace {

// Everything random about a life of tables, drawn before it runs.
struct Plan {
  struct Batch {  // of one worker for one lookup
    std::vector<int64_t> ids;
    std::vector<int64_t> offsets;
    std::vector<float> weights;
    std::vector<float> grad;
  };
  struct Lookup {
    size_t table = 0;
    bool bags = false, weighted = false;
    Combiner combiner = Combiner::kSum;
    IdFilter filter;
    std::vector<Batch> batches;  // by worker
  };
  struct Step {
    std::vector<int64_t> samples;
    int64_t time = 0;
    bool together = false;  // one exchange for all lookups
    std::vector<Lookup> lookups;
  };
  std::vector<TableConfig> configs;
  Rule rule;
  std::vector<Step> steps;
  std::vector<bool> narrow;
};

constexpr int kDims[] = {1, 4, 7};

TableConfig DrawConfig(Rng* rng, const std::string& name) {
  TableConfig config = NormalConfig(name, kDims[rng->Below(3)]);
  config.seed = rng->Bits();
  config.placement.kind = static_cast<PlacementKind>(rng->Below(3));
  config.placement.owner = static_cast<uint32_t>(rng->Below(4));
  if (rng->OneIn(3)) {
    config.vocabulary = 300;
    config.outside_zeros = true;
    return config;
  }
  config.unknown_value = {0.5f};
  config.serving_unknown_value = {0.25f};
  if (rng->OneIn(2)) config.admission.threshold = static_cast<int64_t>(1 + rng->Below(4));
  if (rng->OneIn(2)) config.eviction.max_idle_seconds = 25;
  if (rng->OneIn(3)) config.eviction.max_idle_steps = 3;
  return config;
}

Plan::Batch DrawBatch(Rng* rng, const Plan::Lookup& lookup, const TableConfig& config, size_t n) {
  Plan::Batch batch;
  const int64_t distinct = rng->OneIn(2) ? 40 : 400;
  for (size_t i = 0; i < n; ++i) {
    batch.ids.push_back(config.vocabulary > 0 ? static_cast<int64_t>(rng->Below(400)) - 50
                                              : rng->Key(distinct));
  }
  if (lookup.bags) {
    for (size_t at = 0; at < n; at += rng->Below(4)) {
      batch.offsets.push_back(static_cast<int64_t>(at));
    }
    if (!batch.offsets.empty()) batch.offsets[0] = 0;
    if (lookup.weighted) batch.weights = rng->Floats(n, 0.5f, 1.5f);
  }
  const size_t rows = lookup.bags ? batch.offsets.size() : n;
  batch.grad = rng->Floats(rows * config.dim, -0.1f, 0.1f);
  return batch;
}

Plan DrawPlan(uint64_t seed, int workers) {
  Rng rng(seed);
  Plan plan;
  const size_t tables = 1 + rng.Below(3);
  for (size_t t = 0; t < tables; ++t) {
    plan.configs.push_back(DrawConfig(&rng, "t" + std::to_string(t)));
  }
  plan.rule = RuleOf(rng.OneIn(2) ? RuleKind::kSgd : RuleKind::kAdagrad);
  // From 0 a row's first step is the sign of its gradient, which rounding can change.
  plan.rule.initial_accumulator = 0.1f;
  plan.narrow.assign(tables, false);
  int64_t time = 1000;
  for (int s = 0; s < 8; ++s) {
    Plan::Step step;
    step.time = time += static_cast<int64_t>(rng.Below(20));
    step.together = rng.OneIn(2);
    for (int r = 0; r < workers; ++r) {
      step.samples.push_back(rng.OneIn(5) ? 0 : static_cast<int64_t>(1 + rng.Below(100)));
    }
    const size_t lookups = 1 + rng.Below(4);
    for (size_t l = 0; l < lookups; ++l) {
      Plan::Lookup lookup;
      lookup.table = rng.Below(tables);
      lookup.bags = rng.OneIn(3);
      lookup.weighted = rng.OneIn(2);
      lookup.combiner = static_cast<Combiner>(rng.Below(3));
      lookup.filter.has_padding = rng.OneIn(2);
      lookup.filter.padding_key = 7;
      lookup.filter.coefficient = 1 + static_cast<uint32_t>(rng.Below(2));
      for (int r = 0; r < workers; ++r) {
        const size_t n = rng.OneIn(6) ? 0 : rng.OneIn(4) ? 2000 : rng.Below(100);
        lookup.batches.push_back(DrawBatch(&rng, lookup, plan.configs[lookup.table], n));
      }
      step.lookups.push_back(std::move(lookup));
    }
    plan.steps.push_back(std::move(step));
  }
  return plan;
}

BagView Bags(const Plan::Lookup& lookup, const Plan::Batch& batch) {
  return {View(batch.offsets), lookup.weighted ? batch.weights.data() : nullptr, lookup.combiner};
}

size_t OutRows(const Plan::Lookup& lookup, const Plan::Batch& batch) {
  return lookup.bags ? batch.offsets.size() : batch.ids.size();
}

using Rows = std::map<int64_t, ExportedRow>;

// The results of a life: the rows that each lookup read, by step, lookup and worker, and all rows.
struct Outcome {
  std::vector<std::vector<float>> read, evaluated;
  std::vector<Rows> rows;                      // by table
  std::vector<std::map<int64_t, int>> owners;  // by table and key
  std::vector<double> norms;
};

Outcome LifeOfOne(const Plan& plan) {
  Outcome outcome;
  std::vector<std::unique_ptr<Table>> tables;
  for (const TableConfig& config : plan.configs) {
    tables.push_back(std::make_unique<Table>(config));
    tables.back()->BindOptimizer(plan.rule);
  }
  int64_t number = 0;
  for (const Plan::Step& step : plan.steps) {
    ++number;
    for (const auto& table : tables) table->clock().SetEventTime(step.time);
    double samples = 0;
    for (const int64_t n : step.samples) samples += static_cast<double>(n);
    std::vector<int64_t> tickets;
    std::vector<std::vector<float>> grads;
    for (const Plan::Lookup& lookup : step.lookups) {
      Table& table = *tables[lookup.table];
      Plan::Batch all;
      for (size_t r = 0; r < step.samples.size(); ++r) {
        if (step.samples[r] == 0) continue;
        const Plan::Batch& batch = lookup.batches[r];
        const auto weight = static_cast<float>(step.samples[r] / samples);
        for (const int64_t offset : batch.offsets) {
          all.offsets.push_back(offset + static_cast<int64_t>(all.ids.size()));
        }
        all.ids.insert(all.ids.end(), batch.ids.begin(), batch.ids.end());
        all.weights.insert(all.weights.end(), batch.weights.begin(), batch.weights.end());
        for (const float g : batch.grad) all.grad.push_back(weight * g);
      }
      std::vector<float> out(OutRows(lookup, all) * table.dim());
      tickets.push_back(
          lookup.bags ? table.PoolTrain(View(all.ids), lookup.filter, Bags(lookup, all), out.data())
                      : table.LookupTrain(View(all.ids), lookup.filter, out.data()));
      outcome.read.push_back(out);
      grads.push_back(all.grad);
    }
    for (size_t l = 0; l < step.lookups.size(); ++l) {
      Table& table = *tables[step.lookups[l].table];
      table.Accumulate(tickets[l], grads[l].data(), grads[l].size() / table.dim());
    }
    for (const auto& table : tables) outcome.norms.push_back(table->GradientSquaredNorm());
    for (const auto& table : tables) table->Step({0.1f, 0.01f, 0.5f, number, 0});
    for (const Plan::Lookup& lookup : step.lookups) {
      for (const Plan::Batch& batch : lookup.batches) {
        Table& table = *tables[lookup.table];
        std::vector<float> out(batch.ids.size() * table.dim());
        table.LookupEval(View(batch.ids), lookup.filter, out.data());
        outcome.evaluated.push_back(out);
      }
    }
  }
  for (const auto& table : tables) {
    std::vector<int64_t> twice;
    outcome.rows.push_back(RowsByKey(table->Export(true), &twice));
  }
  return outcome;
}

// One step of one worker; appends what it reads to `read`, by lookup.
void StepOfWorker(const Plan& plan, size_t s, int r, Workers* workers,
                  std::vector<std::vector<float>>* read, std::vector<std::vector<float>>* evaluated,
                  std::vector<double>* norms) {
  const Plan::Step& step = plan.steps[s];
  const size_t lookups = step.lookups.size();
  std::vector<BagView> bags(lookups);
  std::vector<LookupRequest> requests;
  for (size_t l = 0; l < lookups; ++l) {
    const Plan::Lookup& lookup = step.lookups[l];
    const Plan::Batch& batch = lookup.batches[r];
    ShardedTable& table = workers->table(r, lookup.table);
    if (l == 0) {
      for (ShardedTable* each : workers->tables(r)) each->table().clock().SetEventTime(step.time);
    }
    bags[l] = Bags(lookup, batch);
    read->emplace_back(OutRows(lookup, batch) * table.table().dim(), 77.0f);
    requests.push_back(
        {&table, View(batch.ids), lookup.filter, lookup.bags ? &bags[l] : nullptr, nullptr, 0});
  }
  for (size_t l = 0; l < lookups; ++l) {
    requests[l].out = (*read)[read->size() - lookups + l].data();
  }
  if (step.together) {
    LookUpOverWorkers(requests.data(), requests.size(), true);
  } else {
    for (LookupRequest& request : requests) {
      std::vector<LookupRequest> one{request};
      LookUpOverWorkers(one.data(), one.size(), true);
      request.ticket = one[0].ticket;
    }
  }
  for (size_t l = lookups; l-- > 0;) {
    const std::vector<float>& grad = step.lookups[l].batches[r].grad;
    requests[l].table->Accumulate(requests[l].ticket, grad.data(),
                                  grad.size() / requests[l].table->table().dim());
  }
  ExchangeGradients(workers->tables(r), plan.narrow);
  for (ShardedTable* table : workers->tables(r)) norms->push_back(table->GradientSquaredNorm());
  for (ShardedTable* table : workers->tables(r)) {
    table->Step({0.1f, 0.01f, 0.5f, static_cast<int64_t>(s) + 1, 0});
  }
  for (const Plan::Lookup& lookup : step.lookups) {
    for (const Plan::Batch& batch : lookup.batches) {
      ShardedTable& table = workers->table(r, lookup.table);
      evaluated->emplace_back(batch.ids.size() * table.table().dim());
      table.LookupEval(View(batch.ids), lookup.filter, evaluated->back().data());
    }
  }
}

Outcome LifeOfWorkers(const Plan& plan, int n) {
  Workers workers(n, plan.configs, plan.rule);
  Outcome outcome;
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    workers.BeginStep(static_cast<int64_t>(s) + 1, plan.steps[s].samples);
    std::vector<std::vector<std::vector<float>>> read(n), evaluated(n);
    std::vector<std::vector<double>> norms(n);
    workers.Run(
        [&](int r) { StepOfWorker(plan, s, r, &workers, &read[r], &evaluated[r], &norms[r]); });
    for (size_t l = 0; l < plan.steps[s].lookups.size(); ++l) {
      std::vector<float> together;
      for (int r = 0; r < n; ++r) {
        const auto& part = read[r].at(l);
        if (plan.steps[s].samples[r] > 0) {
          together.insert(together.end(), part.begin(), part.end());
        } else {
          for (const float value : part) EXPECT_EQ(value, 0.0f) << "an idle worker reads zeros";
        }
      }
      outcome.read.push_back(together);
    }
    for (int r = 0; r < n; ++r) {
      for (size_t i = 0; i < evaluated[r].size(); ++i) {
        EXPECT_TRUE(SameBits(evaluated[r][i], evaluated[0][i]));
      }
    }
    outcome.evaluated.insert(outcome.evaluated.end(), evaluated[0].begin(), evaluated[0].end());
    for (int r = 0; r < n; ++r) EXPECT_EQ(norms[r], norms[0]);
    outcome.norms.insert(outcome.norms.end(), norms[0].begin(), norms[0].end());
  }
  for (size_t t = 0; t < plan.configs.size(); ++t) {
    Rows rows;
    std::map<int64_t, int> owners;
    for (int r = 0; r < n; ++r) {
      Table& table = workers.table(r, t).table();
      EXPECT_EQ(table.clock().step(), static_cast<int64_t>(plan.steps.size()));
      std::vector<int64_t> twice;
      const Rows own = RowsByKey(table.Export(true), &twice);
      EXPECT_EQ(own.size(), table.Size());
      for (const auto& [key, row] : own) {
        EXPECT_TRUE(table.placement().Owns(key));
        const auto [at, is_new] = rows.emplace(key, row);
        EXPECT_TRUE(is_new || table.placement().replicated()) << "key " << key << " is on two";
        EXPECT_TRUE(at->second == row) << "replicas differ in key " << key;
        owners[key] = r;
      }
      if (table.placement().replicated()) EXPECT_EQ(own.size(), rows.size());
    }
    outcome.rows.push_back(rows);
    outcome.owners.push_back(owners);
  }
  return outcome;
}

void ExpectNear(const std::vector<float>& got, const std::vector<float>& expected,
                const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], 1e-6 + 1e-6 * std::abs(expected[i])) << what << " at " << i;
  }
}

class LivesOfWorkers : public testing::TestWithParam<int> {};

TEST_P(LivesOfWorkers, EqualOneTableWithTheConcatenatedBatches) {
  const int n = GetParam();
  for (uint64_t seed = 0; seed < 120 / kFewer; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Plan plan = DrawPlan(seed * 10 + n, n);
    const Outcome one = LifeOfOne(plan);
    const Outcome many = LifeOfWorkers(plan, n);
    ASSERT_EQ(one.read.size(), many.read.size());
    for (size_t i = 0; i < one.read.size(); ++i) {
      ExpectNear(many.read[i], one.read[i], "lookup " + std::to_string(i));
    }
    ASSERT_EQ(one.evaluated.size(), many.evaluated.size());
    for (size_t i = 0; i < one.evaluated.size(); ++i) {
      ExpectNear(many.evaluated[i], one.evaluated[i], "evaluation " + std::to_string(i));
    }
    for (size_t i = 0; i < one.norms.size(); ++i) {
      ASSERT_NEAR(many.norms[i], one.norms[i], 1e-6 + 1e-5 * one.norms[i]);
    }
    for (size_t t = 0; t < plan.configs.size(); ++t) {
      ASSERT_EQ(one.rows[t].size(), many.rows[t].size());
      for (const auto& [key, expected] : one.rows[t]) {
        const auto got = many.rows[t].find(key);
        ASSERT_TRUE(got != many.rows[t].end()) << "no key " << key;
        ExpectNear(got->second.value, expected.value, "value of key " + std::to_string(key));
        ExpectNear(got->second.state, expected.state, "state of key " + std::to_string(key));
        ASSERT_EQ(got->second.count, expected.count) << "key " << key;
        if (plan.configs[t].vocabulary > 0) continue;  // filled when first seen
        ASSERT_EQ(got->second.last_step, expected.last_step) << "key " << key;
        ASSERT_EQ(got->second.last_time, expected.last_time) << "key " << key;
      }
    }
    if (HasFatalFailure() || HasFailure()) return;
  }
}

TEST_P(LivesOfWorkers, RepeatBitForBit) {
  const int n = GetParam();
  for (uint64_t seed = 1000; seed < 1000 + 30 / kFewer; ++seed) {
    const Plan plan = DrawPlan(seed * 10 + n, n);
    const Outcome first = LifeOfWorkers(plan, n);
    const Threads threads(3);
    const Outcome again = LifeOfWorkers(plan, n);
    for (size_t i = 0; i < first.read.size(); ++i) {
      EXPECT_TRUE(SameBits(first.read[i], again.read[i]));
    }
    EXPECT_EQ(first.norms, again.norms);
    EXPECT_TRUE(first.rows == again.rows);
    EXPECT_EQ(first.owners, again.owners);
  }
}

INSTANTIATE_TEST_SUITE_P(Numbers, LivesOfWorkers, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace msrec
