// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "cases.h"
#include "meter.h"
#include "support.h"

namespace msrec {
namespace {

constexpr uint64_t kKeys = 30000;
constexpr size_t kIds = 20000;

enum class Delta { kNone, kPlain, kDigest };

void CountStep(NumberType type, Delta delta = Delta::kNone) {
  TableConfig config = CountedConfig("counted.step");
  config.precision.value = config.precision.state = type;
  Table table(config);
  Rule rule;
  rule.kind = RuleKind::kAdam;
  StepInput input;
  input.learning_rate = 0.01f;
  input.binding = table.BindOptimizer(rule);
  FillTable(&table, kKeys);
  const std::vector<float> gradient = CountedFloats(kIds * kCountedDim, 3);
  std::vector<float> out(kIds * kCountedDim);
  const auto step = [&](const std::vector<int64_t>& ids) {
    const int64_t ticket = table.LookupTrain(View(ids), {}, out.data());
    table.Accumulate(ticket, gradient.data(), kIds);
    table.Step(input);
    ++input.step;
  };
  step(CountedIds(kIds, kKeys, 4));  // makes the memory that later steps use again
  // A fifteenth of the keys is new.
  const std::vector<int64_t> first = CountedIds(kIds, kKeys + kKeys / 4, 5);
  const std::vector<int64_t> second = CountedIds(kIds, kKeys + kKeys / 4, 6);
  uint64_t mark = delta == Delta::kNone ? 0 : table.changes().Mark();
  if (delta == Delta::kDigest) table.changes().KeepDigest();
  const Meter meter;
  step(first);
  step(second);
  if (delta == Delta::kNone) return;
  table.changes().ExportSince(mark, true);
  mark = table.changes().Mark();
  if (delta == Delta::kDigest) table.changes().KeptDigest();
  table.changes().ReleaseBefore(mark);
}

}  // namespace

void CountStepFloat32() { CountStep(NumberType::kFloat32); }

void CountStepBfloat16() { CountStep(NumberType::kBfloat16); }

void CountStepAndDelta() { CountStep(NumberType::kFloat32, Delta::kPlain); }

void CountStepAndDigest() { CountStep(NumberType::kFloat32, Delta::kDigest); }

void CountLookup() {
  Table table(CountedConfig("counted.lookup"));
  FillTable(&table, kKeys);
  const std::vector<int64_t> ids = CountedIds(4 * kIds, kKeys, 7);
  std::vector<float> out(ids.size() * kCountedDim);
  table.LookupEval(View(ids), {}, out.data());
  const Meter meter;
  table.LookupEval(View(ids), {}, out.data());
}

void CountLookupPooled() {
  Table table(CountedConfig("counted.pooled"));
  FillTable(&table, kKeys);
  const std::vector<int64_t> ids = CountedIds(4 * kIds, kKeys, 8);
  std::vector<int64_t> offsets;
  CountedRandom random(9);
  for (size_t at = 0; at < ids.size(); at += random.Below(20)) {
    offsets.push_back(static_cast<int64_t>(at));
  }
  BagView bags;
  bags.offsets = View(offsets);
  bags.combiner = Combiner::kMean;
  std::vector<float> out(offsets.size() * kCountedDim);
  table.PoolEval(View(ids), {}, bags, out.data());
  const Meter meter;
  table.PoolEval(View(ids), {}, bags, out.data());
}

}  // namespace msrec
