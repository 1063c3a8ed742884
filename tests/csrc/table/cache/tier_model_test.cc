// SPDX-License-Identifier: Apache-2.0
//
// A table over a tier beside a plain model of where its rows are: which rows are in host memory and
// which below, which leave, and what the statistics count. No two rows are last used in one step,
// and rows are so few that each choice of a victim compares them all: the order is exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "map_tier.h"
#include "statistics.h"
#include "table/table.h"
#include "table_testing.h"
#include "testing.h"

namespace msrec {
namespace {

constexpr int kDim = 2;
constexpr int64_t kHost = 12, kKeys = 48;

struct Limits {
  int64_t max_rows = -1, max_idle_steps = -1;
  int64_t remote_rows = -1;  // >= 0: of a tier between host memory and the last one
  bool by_count = false;     // rows that were looked up least leave host memory first
};

// Plain model of a table with tiers: the place of each row, and the statistics of the table.
class PlainTiers {
 public:
  explicit PlainTiers(const Limits& limits) : limits_(limits) {}

  void Train(int64_t key) {
    ++counted["looked_up_keys"];
    counted["host_hits"] += static_cast<double>(host.count(key));
    counted["host_misses"] += static_cast<double>(below.count(key));
    Touch(key);
  }
  void Put(int64_t key) { Touch(key); }
  void Evaluate(int64_t key) {
    ++counted["evaluated_keys"];
    counted["evaluated_host_hits"] += static_cast<double>(host.count(key));
    counted["evaluated_below_hits"] += static_cast<double>(below.count(key));
  }
  // Read ahead: the row stays in host memory until the batch is released. Returns the batch's
  // number.
  int64_t Prefetch(int64_t key) {
    counted["prefetched_rows"] += static_cast<double>(below.count(key));
    if (below.count(key) != 0) Promote(key);
    ++batches;
    if (host.count(key) != 0) host[key].batch = batches;
    return batches;
  }
  // Release the batch and all before it.
  void Release(int64_t number) { released = std::max(released, number); }
  // A call makes room for all of its keys that are not in host memory, before it looks for them.
  size_t Erase(const std::vector<int64_t>& keys) {
    size_t missing = 0, erased = 0;
    for (const int64_t key : keys) missing += host.count(key) == 0;
    MakeRoom(missing, keys);
    for (const int64_t key : keys) erased += host.erase(key) + below.erase(key);
    counted["erased"] += static_cast<double>(erased);
    return erased;
  }
  void Step() {
    for (Rows* rows : {&host, &below}) {
      for (auto it = rows->begin(); it != rows->end();) {
        const bool due =
            limits_.max_idle_steps >= 0 && step - it->second.last_step >= limits_.max_idle_steps;
        counted["evicted_by_age"] += due;
        it = due ? rows->erase(it) : std::next(it);
      }
    }
    ++step;
    while (limits_.max_rows >= 0 && size() > limits_.max_rows) {
      Rows* const rows = below.empty() ? &host : &below;
      rows->erase(First(*rows, false));
      ++counted["evicted_by_capacity"];
    }
  }
  void Clear() {
    counted["erased"] += static_cast<double>(size());
    host.clear();
    below.clear();
  }
  // Another run over the same tier.
  void Reopen() {
    below.merge(host);
    host.clear();
    for (auto& [key, row] : below) row.batch = 0;
    for (auto& [name, number] : counted) number = 0;
    batches = released = 0;
  }

  int64_t size() const { return static_cast<int64_t>(host.size() + below.size()); }
  std::map<std::string, double> Statistics() const {
    auto statistics = counted;
    statistics["rows"] = static_cast<double>(size());
    statistics["host_rows"] = static_cast<double>(host.size());
    statistics["below_rows"] = static_cast<double>(below.size());
    statistics["evicted"] = counted.at("evicted_by_age") + counted.at("evicted_by_capacity");
    statistics["step"] = static_cast<double>(step);
    statistics["host_capacity_rows"] = kHost;
    for (const char* name : {"candidates", "rejected", "evicted_by_norm", "failed_evictions"}) {
      statistics[name] = 0;
    }
    return statistics;
  }

 private:
  struct Row {
    int64_t count = 0, last_step = 0;
    int64_t batch = 0;  // the last one that has read it ahead
  };
  using Rows = std::map<int64_t, Row>;

  Rows::iterator First(Rows& rows, bool by_count) const {
    return std::min_element(rows.begin(), rows.end(), [&](const auto& a, const auto& b) {
      const auto order = [&](const Row& row) {
        return std::make_pair(by_count ? row.count : 0, row.last_step);
      };
      return order(a.second) < order(b.second);
    });
  }
  // Rows of `keys` stay, and rows of batches that are not released.
  void MakeRoom(size_t rows = 1, const std::vector<int64_t>& keys = {}) {
    for (; host.size() + rows > kHost; ++counted["written_down_rows"]) {
      Rows others = host;
      for (const auto& [key, row] : host) {
        const bool asked = std::find(keys.begin(), keys.end(), key) != keys.end();
        if (asked || row.batch > released) others.erase(key);
      }
      below.insert(host.extract(First(others, limits_.by_count)->first));
    }
  }
  void Promote(int64_t key) {
    MakeRoom();
    host.insert(below.extract(key));
  }
  void Touch(int64_t key) {
    if (below.count(key) != 0) {
      Promote(key);
    } else if (host.count(key) == 0) {
      MakeRoom();
      ++counted["inserted"];
    }
    ++host[key].count;
    host[key].last_step = step;
  }

  const Limits limits_;

 public:
  Rows host, below;
  int64_t step = 0, batches = 0, released = 0;
  std::map<std::string, double> counted = {{"inserted", 0},
                                           {"erased", 0},
                                           {"evicted_by_age", 0},
                                           {"evicted_by_capacity", 0},
                                           {"looked_up_keys", 0},
                                           {"host_hits", 0},
                                           {"host_misses", 0},
                                           {"written_down_rows", 0},
                                           {"prefetched_rows", 0},
                                           {"evaluated_keys", 0},
                                           {"evaluated_host_hits", 0},
                                           {"evaluated_below_hits", 0}};
};

class TieredLife {
 public:
  TieredLife(const Limits& limits, uint64_t seed) : limits_(limits), rng_(seed), model_(limits) {
    Open();
  }

  void Live(int operations) {
    for (int i = 0; i < operations; ++i) {
      Operation();
      // Rows that wait to be written are not walked over: where rows must leave, none waits.
      const bool limited = limits_.max_rows >= 0 || limits_.max_idle_steps >= 0;
      const bool flushed = limited || rng_.OneIn(4);
      if (flushed) table_->tiers().Flush();
      table_->Step({0.1f, 0.0f, 1.0f, model_.step + 1, 0});
      model_.Step();
      if (limited) table_->tiers().Flush();
      Compare();
      if (flushed) Scrub();
      if (::testing::Test::HasFatalFailure()) FAIL() << "operation " << i << ": " << doing_;
    }
  }
  const PlainTiers& model() const { return model_; }

 private:
  void Open() {
    TableConfig config = NormalConfig("tiers", kDim);
    config.eviction.max_rows = limits_.max_rows;
    config.eviction.max_idle_steps = limits_.max_idle_steps;
    table_ = std::make_unique<Table>(config);
    CacheSettings settings;
    settings.host_rows = kHost;
    settings.by_count = limits_.by_count;
    const auto open = [this](const std::string& kind) {
      return [this, kind](size_t row_bytes, int generation) {
        auto& tier = tiers_[kind + std::to_string(generation)];
        if (tier == nullptr) tier = std::make_shared<MapTier>(row_bytes);
        return tier;
      };
    };
    if (limits_.remote_rows >= 0) {
      settings.levels.push_back({"remote", open("remote"), limits_.remote_rows});
    }
    settings.levels.push_back({"ssd", open("ssd"), -1});
    table_->tiers().SetCache(settings);
    table_->BindOptimizer(RuleOf(RuleKind::kAdagrad));
    table_->clock().Set(model_.step, 0);
    table_->tiers().Flush();
  }

  void Operation() {
    const auto key = static_cast<int64_t>(rng_.Below(rng_.OneIn(2) ? kKeys : kKeys / 3));
    const std::vector<int64_t> ids = {key};
    std::vector<float> out(kDim);
    switch (rng_.Below(10)) {
      default: {
        doing_ = "train";
        const int64_t ticket = table_->LookupTrain(View(ids), {}, out.data());
        table_->Accumulate(ticket, out.data(), 1);
        return model_.Train(key);
      }
      case 0:
        doing_ = "put";
        table_->Put(View(ids), out.data(), 1);
        return model_.Put(key);
      case 1:
        doing_ = "evaluate";
        table_->LookupEval(View(ids), {}, out.data());
        return model_.Evaluate(key);
      case 2: {
        doing_ = "prefetch";
        if (model_.batches - model_.released >= 4) return Release();
        const int64_t number = table_->tiers().Prefetch(View(ids));
        ASSERT_EQ(number, model_.Prefetch(key));
        table_->tiers().PrefetchWait(number);
        return;
      }
      case 3: {
        doing_ = "erase";
        const std::vector<int64_t> two = {key, (key + 1) % kKeys};
        ASSERT_EQ(table_->Erase(View(two)), model_.Erase(two));
        return;
      }
      case 4:
        if (!rng_.OneIn(8)) return;
        if (rng_.OneIn(3)) {
          doing_ = "clear";
          table_->Clear();
          scrubbed_ = false;
          return model_.Clear();
        }
        if (rng_.OneIn(2)) {
          doing_ = "rebind";
          table_->BindOptimizer(RuleOf(++bound_ % 2 == 1 ? RuleKind::kAdam : RuleKind::kSgd));
          scrubbed_ = false;
          return;
        }
        if (bound_ > 0) return;  // another run would bind the first optimizer
        doing_ = "reopen";
        table_->tiers().Flush();
        table_->Close();
        model_.Reopen();
        Open();
        scrubbed_ = false;
    }
  }

  // Of batches that were prefetched, some; no others can be released, and none is waited for again.
  void Release() {
    doing_ = "release";
    TableTiers& tiers = table_->tiers();
    const int64_t number = model_.released + 1 + static_cast<int64_t>(rng_.Below(4));
    tiers.PrefetchDone(number);
    model_.Release(number);
    ASSERT_THROW(tiers.PrefetchDone(0), std::invalid_argument);
    ASSERT_THROW(tiers.PrefetchDone(model_.batches + 1), std::invalid_argument);
    ASSERT_THROW(tiers.PrefetchWait(number), std::invalid_argument);
    if (number < model_.batches) tiers.PrefetchWait(number + 1);
  }

  void Compare() {
    const auto statistics = Named(table_->Stats());
    std::map<std::string, double> named(statistics.begin(), statistics.end());
    for (const auto& [name, number] : model_.Statistics()) {
      ASSERT_EQ(named.at(name), number) << name;
    }
    ASSERT_EQ(table_->Size(), static_cast<size_t>(model_.size()));
    const auto keys = Range(0, kKeys);
    const std::unique_ptr<bool[]> present(new bool[kKeys]);
    table_->Contains(View(keys), present.get());
    for (const int64_t key : keys) {
      const bool here = model_.host.count(key) != 0, below = model_.below.count(key) != 0;
      ASSERT_EQ(present[key], here || below) << key;
      if (here) ASSERT_EQ(table_->Explain(key).tier, kHostTier) << key;
    }
  }

  double InTiers() const {
    double rows = 0;
    for (const auto& [name, number] : Named(table_->Stats())) {
      if (name == "ssd_rows" || name == "remote_rows") rows += number;
    }
    return rows;
  }

  // After a flush, a round reads every row of the table. Leaves the next round half done.
  void Scrub() {
    const size_t most = 1 + rng_.Below(kKeys);
    for (const bool whole : {false, true}) {
      size_t all = 0;
      for (bool ended = !whole && !scrubbed_; !ended;) {
        const auto [looked, end] = table_->tiers().Scrub(most);
        ASSERT_LE(looked, most);
        all += looked;
        ended = end;
      }
      if (whole) ASSERT_EQ(static_cast<double>(all), InTiers());
    }
    ASSERT_GE(InTiers(), static_cast<double>(model_.size()));
    scrubbed_ = !table_->tiers().Scrub(1 + rng_.Below(10)).second;
  }

  const Limits limits_;
  Rng rng_;
  PlainTiers model_;
  std::map<std::string, std::shared_ptr<MapTier>> tiers_;  // outlive each table
  std::unique_ptr<Table> table_;
  bool scrubbed_ = false;  // a part of a round
  int bound_ = 0;          // further optimizers, whose rows are of another size
  std::string doing_;
};

TEST(TableTiersModel, RowsAreWhereThePlainModelHasThem) {
  std::map<std::string, double> all;
  for (uint64_t seed = 0; seed < 24 / kFewer + 6; ++seed) {
    SCOPED_TRACE(seed);
    Limits limits;
    limits.max_rows = std::vector<int64_t>{-1, 30, 9}[seed % 3];
    limits.max_idle_steps = seed % 4 == 3 ? 25 : -1;
    limits.by_count = seed % 2 == 1;
    limits.remote_rows = seed % 5 < 2 ? 10 : -1;
    TieredLife life(limits, seed);
    ASSERT_NO_FATAL_FAILURE(life.Live(400 / static_cast<int>(kFewer) + 60));
    for (const auto& [name, number] : life.model().counted) all[name] += number;
  }
  for (const auto& [name, number] : all) {
    if (kFewer == 1) EXPECT_GT(number, 10) << name;
  }
}

}  // namespace
}  // namespace msrec
