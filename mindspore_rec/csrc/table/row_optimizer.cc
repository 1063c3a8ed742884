// SPDX-License-Identifier: Apache-2.0
#include "table/row_optimizer.h"

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "table/cache/row_cache.h"

namespace msrec {

bool RowOptimizer::KeepsState(const Rule& rule) const {
  const ShardContext& context = core_.context;
  return core_.has_optimizer && rule.kind == context.rule.kind &&
         StateWidth(rule, context.eviction, core_.config.dim) == context.layout.state_width;
}

int64_t RowOptimizer::Replace(const Rule& rule) {
  core_.context.rule = rule;
  return ++binding_;
}

RowOptimizer::Relaid RowOptimizer::Relay(const Rule& rule) {
  Relaid relaid;
  relaid.rule = rule;
  relaid.layout = core_.LayoutFor(rule);
  const Rule before = core_.context.rule;
  core_.context.rule = rule;  // what fresh state is made by
  try {
    for (auto& shard : core_.shards) relaid.stores.push_back(shard->Relaid(relaid.layout));
    if (core_.cache != nullptr) relaid.lower = core_.cache->tiers.Relay(relaid.layout);
    // Every row gets a new optimizer state, so every row changes.
    core_.ReserveChanges(relaid.lower.keys, true);
  } catch (...) {
    core_.context.rule = before;
    if (core_.cache != nullptr) core_.cache->tiers.DropStale(std::move(relaid.lower.queue));
    throw;
  }
  core_.context.rule = before;
  return relaid;
}

std::shared_ptr<WriteBehind> RowOptimizer::Adopt(Relaid relaid) noexcept {
  std::shared_ptr<WriteBehind> left;
  core_.context.rule = relaid.rule;
  if (core_.cache != nullptr) left = core_.cache->tiers.Adopt(std::move(relaid.lower));
  core_.TakeLayout(relaid.layout);
  for (int s = 0; s < kNumShards; ++s) core_.shards[s]->Adopt(relaid.stores[s].get());
  ++core_.relayouts;
  if (core_.device != nullptr) {
    core_.device->Clear();
    core_.device->SetStates(nullptr, core_.context.rule.StateWidth(core_.config.dim));
  }
  core_.has_optimizer = true;
  ++binding_;
  return left;
}

StepConstants RowOptimizer::Constants(const StepInput& input) const {
  const Rule& rule = core_.context.rule;
  const auto require = [&](bool fine, const char* argument, const char* range, float got) {
    if (!fine) {
      throw std::invalid_argument(core_.Where(std::string(argument) + " must be " + range +
                                              ", got " + std::to_string(got)));
    }
  };
  require(std::isfinite(input.learning_rate) && input.learning_rate >= 0.0f, "learning_rate",
          "a finite number >= 0", input.learning_rate);
  require(std::isfinite(input.weight_decay) && input.weight_decay >= 0.0f, "weight_decay",
          "a finite number >= 0", input.weight_decay);
  require(rule.kind != RuleKind::kFtrl || input.learning_rate > 0.0f, "learning_rate",
          "> 0 with ftrl, which divides by it", input.learning_rate);
  if (input.binding != 0 && input.binding != binding_) {
    throw std::runtime_error(core_.Where(
        "another optimizer was created for this table later; this one can no longer step"));
  }
  StepConstants constants = MakeStepConstants(rule, input);
  constants.rounding = {core_.config.precision.stochastic,
                        RoundingStream(core_.config.initializer.seed, core_.context.step)};
  return constants;
}

void RowOptimizer::ReserveUpdate() {
  for (int s = 0; s < kNumShards; ++s) {
    core_.shards[s]->changes().Reserve(core_.lookups.gradients().part(s).n);
  }
}

void RowOptimizer::PrepareUpdate(int s, bool stale) {
  GradientSum::Part& part = core_.lookups.gradients().part(s);
  Shard& shard = *core_.shards[s];
  if (stale) {
    for (size_t i = 0; i < part.n; ++i) {
      if (part.row[i] != nullptr) part.row[i] = shard.Find(part.key[i]);
    }
  }
  if (core_.oldest_mark == 0) return;
  for (size_t i = 0; i < part.n; ++i) {
    if (part.row[i] != nullptr) shard.Touch(part.row[i]);
  }
}

void RowOptimizer::Update(const StepConstants& constants, int s) {
  GradientSum::Part& part = core_.lookups.gradients().part(s);
  core_.context.row_kernels->step(constants, core_.config.dim, part.row.data(), part.sum.data(),
                                  part.n);
}

}  // namespace msrec
