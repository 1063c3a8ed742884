// SPDX-License-Identifier: Apache-2.0
//
// A table with a device cache is the table without: the same life of both, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>

#include "map_tier.h"
#include "rules.h"
#include "table/table.h"
#include "table_testing.h"
#include "testing.h"

namespace msrec {
namespace {

constexpr int kDim = 5;

struct Kind {
  explicit Kind(RuleKind kind) : rule(kind) {}

  RuleKind rule;
  bool lfu = false;
  int64_t slots = 64;
  uint64_t distinct = 150;
  int64_t vocabulary = 0;
  int64_t threshold = -1;
  int64_t host_rows = 0;  // > 0: of the table with a device cache; the rest is below
  Eviction eviction;
};

// A table and, where it has one, the memory of its device cache.
struct Subject {
  std::unique_ptr<Table> table;
  std::vector<float> values;
  std::vector<float> states;

  Subject(const Kind& kind, bool device) {
    TableConfig config;
    config.name = "t";
    config.dim = kDim;
    config.initializer.kind = InitKind::kNormal;
    config.initializer.b = 0.1f;
    config.unknown_value = {0.25f};
    config.vocabulary = kind.vocabulary;
    config.outside_zeros = true;
    config.admission.threshold = kind.threshold;
    config.eviction = kind.eviction;
    table = std::make_unique<Table>(config);
    // A static table's rows that were never trained have another last step over tiers: so have
    // both.
    if (kind.host_rows > 0 && (device || kind.vocabulary > 0)) {
      CacheSettings settings;
      settings.host_rows = kind.host_rows;
      settings.levels.push_back(
          {"ssd", [](size_t row_bytes, int) { return std::make_shared<MapTier>(row_bytes); }, -1});
      table->tiers().SetCache(std::move(settings));
    }
    if (device) {
      values.assign((kind.slots + 3) * kDim, -9.0f);
      DeviceConfig cache;
      cache.rows = kind.slots;
      cache.lfu = kind.lfu;
      table->device().Attach(cache, values.data());
    }
    Bind(kind.rule, kind.slots, device);
  }

  void Bind(RuleKind kind, int64_t slots, bool device) {
    Rule rule;
    rule.kind = kind;
    rule.momentum = 0.5f;
    rule.l1 = 0.01f;
    rule.initial_accumulator = 0.1f;
    table->BindOptimizer(rule);
    if (!device) return;
    // Of a rule with as much state the memory stays, as do rows in it where the rule is the same.
    states.resize((slots + 3) * rule.StateWidth(kDim), -7.0f);
    table->device().SetStates(states.data());
  }
};

std::vector<size_t> ByKey(const ExportedRows& rows) {
  std::vector<size_t> order(rows.n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t i, size_t j) { return rows.keys[i] < rows.keys[j]; });
  return order;
}

void ExpectSame(const ExportedRows& a, const ExportedRows& b) {
  ASSERT_EQ(a.n, b.n);
  ASSERT_EQ(a.state_width, b.state_width);
  const auto first = ByKey(a), second = ByKey(b);
  for (size_t at = 0; at < a.n; ++at) {
    const size_t i = first[at], j = second[at];
    ASSERT_EQ(a.keys[i], b.keys[j]);
    ASSERT_EQ(a.present[i], b.present[j]);
    ASSERT_EQ(a.counts[i], b.counts[j]) << "key " << a.keys[i];
    ASSERT_EQ(a.last_steps[i], b.last_steps[j]) << "key " << a.keys[i];
    ASSERT_TRUE(SameBits(a.values.get() + i * kDim, b.values.get() + j * kDim, kDim))
        << "key " << a.keys[i];
    ASSERT_TRUE(SameBits(a.states.get() + i * a.state_width, b.states.get() + j * a.state_width,
                         a.state_width))
        << "key " << a.keys[i];
  }
}

class Life {
 public:
  Life(const Kind& kind, uint64_t seed)
      : kind_(kind), rng_(seed), plain_(kind, false), cached_(kind, true) {}

  void Step() {
    IdFilter filter;
    filter.has_padding = rng_.OneIn(2);
    filter.padding_key = rng_.Key(kind_.distinct);
    const size_t lookups = rng_.Below(4);
    for (size_t l = 0; l < lookups; ++l) {
      // No step may hold more distinct keys than there are slots.
      const auto ids = Ids(rng_.Below(static_cast<uint64_t>(kind_.slots) / 3 + 1));
      Lookup(ids, filter, rng_.OneIn(6));
      if (HasFatalFailure()) return;
    }
    const double norm = plain_.table->GradientSquaredNorm();
    ASSERT_EQ(norm, cached_.table->GradientSquaredNorm());
    StepInput input;
    input.learning_rate = 0.1f;
    input.weight_decay = 0.01f;
    input.grad_scale = 0.5f;
    input.step = ++step_;
    plain_.table->Step(input);
    cached_.table->Step(input);
  }

  void Between() {
    const auto ids = Ids(rng_.Below(20));
    const auto floats = rng_.Floats(ids.size() * kDim);
    switch (rng_.Below(kind_.vocabulary > 0 ? 6 : 9)) {
      case 0:
        Both([&](Table* table) { table->Put(View(ids), floats.data(), ids.size()); });
        break;
      case 1: {
        std::vector<float> a(floats.size()), b(floats.size());
        plain_.table->LookupEval(View(ids), {}, a.data());
        cached_.table->LookupEval(View(ids), {}, b.data());
        ASSERT_TRUE(SameBits(a, b));
        break;
      }
      case 2:
        ExpectSame(plain_.table->ExportKeys(View(ids), true),
                   cached_.table->ExportKeys(View(ids), true));
        break;
      case 3: {
        auto keys = ids;
        auto values = floats;
        Both([&](Table* table) {
          RowArrays rows;
          rows.keys = keys.data();
          rows.values = values.data();
          table->Import(keys.size(), rows, 0);
        });
        break;
      }
      case 4:
        for (const int64_t key : ids) {
          ASSERT_EQ(plain_.table->Explain(key).norm, cached_.table->Explain(key).norm);
        }
        break;
      case 5:
        ExpectSame(plain_.table->Export(true), cached_.table->Export(true));
        break;
      case 6:
        ASSERT_EQ(plain_.table->Erase(View(ids)), cached_.table->Erase(View(ids)));
        break;
      case 7:
        if (rng_.OneIn(20)) Both([](Table* table) { table->Clear(); });
        break;
      case 8:
        if (rng_.OneIn(10)) {
          const bool trainable = rng_.OneIn(2);
          Both([&](Table* table) { table->SetTrainable(trainable); });
          // Frozen lookups never end by a step: more keys than slots may be asked for in all.
          for (int i = 0; i < 5 && !trainable; ++i) {
            Lookup(Ids(static_cast<size_t>(kind_.slots) / 2), {}, false);
            if (HasFatalFailure()) return;
          }
          Both([](Table* table) { table->SetTrainable(true); });
        }
        break;
    }
  }

  void Rebind(RuleKind rule) {
    plain_.Bind(rule, kind_.slots, false);
    cached_.Bind(rule, kind_.slots, true);
  }

  void Finish() { ExpectSame(plain_.table->Export(true), cached_.table->Export(true)); }
  Table* cached() { return cached_.table.get(); }

 private:
  static bool HasFatalFailure() { return ::testing::Test::HasFatalFailure(); }

  template <typename Fn>
  void Both(Fn fn) {
    fn(plain_.table.get());
    fn(cached_.table.get());
  }

  std::vector<int64_t> Ids(size_t n) {
    std::vector<int64_t> ids(n);
    for (int64_t& id : ids) {
      const uint64_t range = rng_.OneIn(3) ? kind_.distinct : kind_.distinct / 4 + 1;
      id = kind_.vocabulary > 0 ? static_cast<int64_t>(rng_.Below(kind_.vocabulary))
                                : rng_.Key(range);
    }
    return ids;
  }

  // `classic`: the cached table is looked up as if it had no cache.
  void Lookup(const std::vector<int64_t>& ids, const IdFilter& filter, bool classic) {
    std::vector<float> a(ids.size() * kDim), b(ids.size() * kDim);
    const int64_t ticket = plain_.table->LookupTrain(View(ids), filter, a.data());
    int64_t other;
    if (classic) {
      other = cached_.table->LookupTrain(View(ids), filter, b.data());
    } else {
      std::vector<int32_t> slots(ids.size());
      if (rng_.OneIn(3)) cached_.table->device().Prepare(View(ids), filter);
      other = cached_.table->device().LookupSlots(View(ids), filter, nullptr, slots.data());
      for (size_t i = 0; i < ids.size(); ++i) {
        std::copy_n(cached_.values.data() + static_cast<size_t>(slots[i]) * kDim, kDim,
                    b.data() + i * kDim);
      }
    }
    ASSERT_TRUE(SameBits(a, b));
    if (rng_.OneIn(8)) return;  // a forward pass without a backward one
    const auto grad = rng_.Floats(ids.size() * kDim);
    plain_.table->Accumulate(ticket, grad.data(), ids.size());
    cached_.table->Accumulate(other, grad.data(), ids.size());
  }

  const Kind kind_;
  Rng rng_;
  Subject plain_, cached_;
  int64_t step_ = 0;
};

void Live(const Kind& kind, uint64_t seed, int steps) {
  Life life(kind, seed);
  for (int i = 0; i < steps; ++i) {
    life.Step();
    if (::testing::Test::HasFatalFailure()) FAIL() << "seed " << seed << ", step " << i;
    if (i % 3 == 0) life.Between();
    if (::testing::Test::HasFatalFailure()) FAIL() << "seed " << seed << ", after step " << i;
    if (i == steps / 2) {
      life.Rebind(RuleKind::kFtrl);
      life.Rebind(kind.rule);
    }
  }
  life.Finish();
}

constexpr int kSteps = static_cast<int>(300 / kFewer);

TEST(TableDevice, EveryRuleTrainsTheSameBits) {
  for (const RuleKind rule : kEveryRuleKind) {
    Kind kind{rule};
    Live(kind, 1, kSteps);
    kind.lfu = true;
    Live(kind, 2, kSteps);
    if (HasFatalFailure()) FAIL() << "rule " << static_cast<int>(rule);
  }
}

TEST(TableDevice, AdmissionEvictionAndStaticTables) {
  Kind admission{RuleKind::kAdam};
  admission.threshold = 3;
  Live(admission, 3, kSteps);
  Kind age{RuleKind::kAdam};
  age.eviction.max_idle_steps = 6;
  Live(age, 4, kSteps);
  Kind capacity{RuleKind::kAdam};
  capacity.eviction.max_rows = 70;
  Live(capacity, 5, kSteps);
  Kind norm{RuleKind::kAdam};
  norm.eviction.min_norm = 0.15f;
  Live(norm, 6, kSteps);
  Kind scored{RuleKind::kAdagrad};
  scored.eviction.order = EvictionOrder::kLfuDecay;
  scored.eviction.half_life_steps = 10.0;
  scored.eviction.max_rows = 90;
  Live(scored, 7, kSteps);
  Kind fixed{RuleKind::kAdam};
  fixed.vocabulary = 200;
  Live(fixed, 8, kSteps);
}

TEST(TableDevice, OverTiers) {
  for (const int64_t host_rows : {70, 90, 140}) {
    Kind kind{RuleKind::kAdam};
    kind.host_rows = host_rows;
    Live(kind, 10, kSteps);
    kind.threshold = 3;
    kind.eviction.max_idle_steps = 9;
    Live(kind, 11, kSteps);
    kind.lfu = true;
    kind.slots = 20;
    Live(kind, 12, kSteps);
    Kind fixed{RuleKind::kAdagrad};
    fixed.host_rows = host_rows;
    fixed.vocabulary = 200;
    Live(fixed, 13, kSteps);
    if (HasFatalFailure()) FAIL() << "host_rows " << host_rows;
  }
}

TEST(TableDevice, ManySlotsAndThreads) {
  Kind kind{RuleKind::kAdam};
  kind.slots = 6000;
  kind.distinct = 20000;
  const Threads threads(4);
  Live(kind, 9, 30);
}

TEST(TableDevice, TooFewSlotsIsAnErrorThatNamesTheLeastAndChangesNothing) {
  Kind kind{RuleKind::kAdam};
  kind.slots = 10;
  Subject subject(kind, true);
  std::vector<int64_t> ids(12);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<int32_t> slots(12);
  try {
    subject.table->device().LookupSlots(View(ids), {}, nullptr, slots.data());
    FAIL() << "12 keys in 10 slots";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("device_rows must be at least 12"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(subject.table->Size(), 0u);
  // Over two lookups of one step it is their union that counts.
  std::vector<int64_t> first(ids.begin(), ids.begin() + 6), second(ids.begin() + 3, ids.end());
  subject.table->device().LookupSlots(View(first), {}, nullptr, slots.data());
  EXPECT_THROW(subject.table->device().LookupSlots(View(second), {}, nullptr, slots.data()),
               std::invalid_argument);
  EXPECT_EQ(subject.table->Size(), 6u);
  second.resize(7);
  subject.table->device().LookupSlots(View(second), {}, nullptr, slots.data());
  EXPECT_EQ(subject.table->Size(), 10u);
}

TEST(TableDevice, ALookupWithAnotherFilterIsNotThePreparedOne) {
  IdFilter one, two, none;
  one.has_padding = two.has_padding = true;
  one.padding_key = 1;
  two.padding_key = 2;
  const std::vector<int64_t> ids = {1, 2, 3};
  const auto slots_of = [&](const IdFilter* prepared, const IdFilter& filter) {
    Subject subject(Kind{RuleKind::kAdam}, true);
    std::vector<int32_t> slots(ids.size());
    if (prepared != nullptr) subject.table->device().Prepare(View(ids), *prepared);
    subject.table->device().LookupSlots(View(ids), filter, nullptr, slots.data());
    std::vector<bool> dropped;  // all dropped ids share the slot of zeros
    for (const int32_t slot : slots) {
      dropped.push_back(SameBits(subject.values.data() + slot * kDim,
                                 std::vector<float>(kDim, 0.0f).data(), kDim));
    }
    return dropped;
  };
  for (const IdFilter* prepared : {&one, &two, &none}) {
    for (const IdFilter* filter : {&one, &two, &none}) {
      EXPECT_EQ(slots_of(prepared, *filter), slots_of(nullptr, *filter));
    }
  }
  EXPECT_NE(slots_of(nullptr, one), slots_of(nullptr, two));
}

// Lookups of one step that fit into the cache together. If the table is trained, or if they were
// prepared together, each finds its rows in its slots until the last of them is read.
void ReadTogether(bool trainable, bool lfu, bool tiered) {
  constexpr size_t kSlots = 20;
  Rng rng(21);
  Kind kind{RuleKind::kAdam};
  kind.slots = kSlots;
  kind.lfu = lfu;
  kind.host_rows = tiered ? 30 : 0;
  Subject subject(kind, true), plain(kind, false);
  const auto values = rng.Floats(60 * kDim);
  for (Table* table : {subject.table.get(), plain.table.get()}) {
    for (int64_t first = 0; first < 60; first += 20) {
      table->Put(View(Range(first, first + 20)), values.data() + first * kDim, 20);
    }
    table->SetTrainable(trainable);
  }
  TableDevice& device = subject.table->device();
  for (int64_t step = 1; step <= 200; ++step) {
    std::vector<std::vector<int64_t>> lookups;
    std::set<int64_t> distinct;
    size_t slots_left = rng.OneIn(2) ? kSlots : 1 + rng.Below(kSlots);
    while (slots_left > 0) {
      lookups.emplace_back();
      for (size_t n = 1 + rng.Below(slots_left); n > 0;) {
        lookups.back().push_back(static_cast<int64_t>(rng.Below(60)));
        // Without training, a row that is only below gets a slot in each lookup.
        const bool needs_slot = distinct.insert(lookups.back().back()).second;
        if (!needs_slot && (trainable || !tiered)) continue;
        --slots_left;
        --n;
      }
    }
    const bool prepared = !trainable || rng.OneIn(2);
    for (const auto& ids : lookups) {
      if (prepared) device.Prepare(View(ids), {});
    }
    std::vector<std::vector<int32_t>> slots;
    for (const auto& ids : lookups) {
      slots.emplace_back(ids.size());
      device.LookupSlots(View(ids), {}, nullptr, slots.back().data());
    }
    for (size_t l = 0; l < lookups.size(); ++l) {
      std::vector<float> expected(lookups[l].size() * kDim), out;
      plain.table->LookupEval(View(lookups[l]), {}, expected.data());
      for (const int32_t slot : slots[l]) {
        const float* value = subject.values.data() + slot * kDim;
        out.insert(out.end(), value, value + kDim);
      }
      ASSERT_TRUE(SameBits(out, expected)) << "step " << step << ", lookup " << l;
    }
    if (trainable) subject.table->Step({0.1f, 0.0f, 1.0f, step, 0});
  }
}

TEST(TableDevice, LookupsThatFitTogetherKeepTheirSlotsUntilTheyAreRead) {
  for (const bool trainable : {true, false}) {
    for (const bool lfu : {false, true}) {
      for (const bool tiered : {false, true}) {
        SCOPED_TRACE(std::string(trainable ? "trainable " : "") + (lfu ? "lfu " : "") +
                     (tiered ? "tiered" : ""));
        ASSERT_NO_FATAL_FAILURE(ReadTogether(trainable, lfu, tiered));
      }
    }
  }
}

// Lookups without training leave the slots of other lookups of the step alone.
TEST(TableDevice, AFullCacheHasNoRoomForFurtherKeysOfTheStep) {
  Kind kind{RuleKind::kAdam};
  kind.slots = 10;
  Subject subject(kind, true);
  std::vector<int32_t> slots(10);
  TableDevice& device = subject.table->device();
  const auto look_up = [&](int64_t first, int64_t last) {
    device.LookupSlots(View(Range(first, last)), {}, nullptr, slots.data());
  };
  look_up(0, 9);
  subject.table->SetTrainable(false);
  subject.table->Put(View({9}), std::vector<float>(kDim).data(), 1);
  look_up(9, 10);
  subject.table->SetTrainable(true);
  EXPECT_THROW(look_up(10, 11), std::invalid_argument);
  subject.table->SetTrainable(false);
  device.Prepare(View(Range(0, 6)), {});
  EXPECT_THROW(device.Prepare(View(Range(5, 11)), {}), std::invalid_argument);
  device.Prepare(View(Range(5, 10)), {});
}

TEST(TableDevice, ALookupPreparedForNoStepIsAnError) {
  Subject subject(Kind{RuleKind::kAdam}, true);
  const std::vector<int64_t> ids = {1, 2};
  subject.table->device().Prepare(View(ids), {});
  EXPECT_THROW(subject.table->Step({}), std::runtime_error);
  subject.table->DiscardGradients();
  subject.table->Step({});
}

}  // namespace
}  // namespace msrec
