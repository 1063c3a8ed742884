// SPDX-License-Identifier: Apache-2.0
//
// Calls on a table whose tiers fail in the middle of them: the table is as before, or as after.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "fault_env.h"
#include "map_tier.h"
#include "statistics.h"
#include "table/table.h"
#include "table_state.h"
#include "table_testing.h"
#include "testing.h"
#include "tier_testing.h"

namespace msrec {
namespace {

constexpr int kDim = 4;

TableConfig Config() { return NormalConfig("faulty", kDim); }

// A table over tiers in memory, one for each generation, and what they are told to refuse.
class Faulty {
 public:
  using Fail = std::function<bool(int generation, const std::string& call)>;

  explicit Faulty(const TableConfig& config = Config(), int64_t host_rows = 40,
                  int64_t upper_rows = -1)
      : table(config) {
    CacheSettings settings;
    settings.host_rows = host_rows;
    if (upper_rows >= 0) settings.levels.push_back({"remote", Opens(), upper_rows});
    settings.levels.push_back({"ssd", Opens(), -1});
    table.tiers().SetCache(settings);
    table.BindOptimizer(RuleOf(RuleKind::kAdam));
  }
  ~Faulty() { FailWith(nullptr); }

  void FailWith(Fail fail) {
    const std::lock_guard<std::mutex> lock(mutex_);
    fail_ = std::move(fail);
  }
  // A call of the writer that began before may fail yet.
  void Heal() {
    FailWith(nullptr);
    for (int i = 0; i < 3; ++i) {
      try {
        return table.tiers().Flush();
      } catch (const std::runtime_error&) {
      }
    }
  }
  size_t RowsOfGeneration(int generation) {
    size_t rows = 0;
    for (const auto& [number, tier] : tiers) rows += number == generation ? tier->size() : 0;
    return rows;
  }

  std::vector<std::pair<int, std::shared_ptr<MapTier>>> tiers;
  Table table;

 private:
  std::function<std::shared_ptr<Tier>(size_t, int)> Opens() {
    return [this](size_t row_bytes, int generation) {
      auto tier = std::make_shared<MapTier>(row_bytes);
      tier->FailWith([this, generation](const char* call) {
        Fail fail;
        {
          const std::lock_guard<std::mutex> lock(mutex_);
          fail = fail_;
        }
        return fail && fail(generation, call);
      });
      tiers.emplace_back(generation, tier);
      return tier;
    };
  }

  std::mutex mutex_;
  Fail fail_;
};

int64_t Look(Table* table, const std::vector<int64_t>& ids) {
  std::vector<float> out(ids.size() * kDim);
  return table->LookupTrain(View(ids), {}, out.data());
}

void Train(Table* table, const std::vector<int64_t>& ids, int64_t step) {
  const int64_t ticket = Look(table, ids);
  const auto grad = Rng(static_cast<uint64_t>(step)).Floats(ids.size() * kDim);
  table->Accumulate(ticket, grad.data(), ids.size());
  table->Step({0.05f, 0, 1, step, 0});
}

TableState StateOf(Table* table) {
  std::string wrong;
  const TableState state = TableState::Of(table, &wrong);
  EXPECT_EQ(wrong, "");
  return state;
}

#define EXPECT_STATE(table, expected) EXPECT_EQ(StateOf(&(table)).Difference(expected), "")

double Stat(Table* table, const std::string& name) {
  for (const auto& [each, value] : Named(table->Stats())) {
    if (each == name) return value;
  }
  ADD_FAILURE() << "no statistic " << name;
  return 0;
}

// ---------------------------------------------------------------- another layout

class BindFails : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Calls, BindFails,
                         ::testing::Values("write", "clear", "scan", "erase", "read", "flush"));

// Whichever call of the old or the new tier fails, and at which time: the table is as it was, with
// its pending lookups, or bound, and it goes on.
TEST_P(BindFails, AndTheTableIsAsItWasOrBound) {
  int threw = 0, bound = 0;
  for (const int generation : {0, 1}) {
    for (int nth = 1; nth <= 3; ++nth) {
      SCOPED_TRACE("generation " + std::to_string(generation) + " call " + std::to_string(nth));
      Faulty faulty(Config(), 40, 60);
      Table twin(Config());
      twin.BindOptimizer(RuleOf(RuleKind::kAdam));
      for (int64_t step = 1; step < 8; ++step) {
        Train(&faulty.table, Range(step * 20, step * 20 + 30), step);
        Train(&twin, Range(step * 20, step * 20 + 30), step);
      }
      const std::vector<int64_t> gone = Range(30, 35);
      ASSERT_EQ(faulty.table.Erase(View(gone)), twin.Erase(View(gone)));
      const TableState before = StateOf(&twin);
      const int64_t ticket = Look(&faulty.table, {171, 172, 1000}),
                    other = Look(&twin, {171, 172, 1000});
      const TableState with_lookup = StateOf(&twin);
      std::atomic<int> calls{0};
      faulty.FailWith([&](int number, const std::string& call) {
        return number == generation && call == GetParam() && ++calls >= nth;
      });
      bool done = false;
      try {
        faulty.table.BindOptimizer(RuleOf(RuleKind::kSgd));
        done = true;
      } catch (const std::runtime_error& error) {
        EXPECT_NE(std::string(error.what()).find("table 'faulty'"), std::string::npos);
      }
      (done ? bound : threw) += 1;
      faulty.FailWith(nullptr);
      std::vector<float> grad(3 * kDim, 0.5f);
      if (!done) {
        EXPECT_STATE(faulty.table, with_lookup);
        faulty.table.Accumulate(ticket, grad.data(), 3);
        twin.Accumulate(other, grad.data(), 3);
        Train(&faulty.table, Range(100, 120), 8);
        Train(&twin, Range(100, 120), 8);
        EXPECT_STATE(faulty.table, StateOf(&twin));
        faulty.table.BindOptimizer(RuleOf(RuleKind::kSgd));
      }
      twin.BindOptimizer(RuleOf(RuleKind::kSgd));
      EXPECT_STATE(faulty.table, StateOf(&twin));
      for (int64_t step = 9; step < 14; ++step) {
        Train(&faulty.table, Range(step * 20, step * 20 + 30), step);
        Train(&twin, Range(step * 20, step * 20 + 30), step);
      }
      EXPECT_STATE(faulty.table, StateOf(&twin));
      // Flushed, nothing is left where nobody would read it but the next run.
      faulty.table.tiers().Flush();
      EXPECT_EQ(faulty.RowsOfGeneration(0), 0u);
      faulty.table.BindOptimizer(RuleOf(RuleKind::kFtrl));
      twin.BindOptimizer(RuleOf(RuleKind::kFtrl));
      EXPECT_STATE(faulty.table, StateOf(&twin));
    }
  }
  if (GetParam() == "write" || GetParam() == "scan") EXPECT_GT(threw, 0);
  EXPECT_GT(bound, 0);
}

// The store of a real disk that refuses to be emptied.
TEST(BindFails, WithRowsOnDisk) {
  FaultEnv env(7);
  TestDirectory directory(true);
  Table table(Config()), twin(Config());
  CacheSettings settings;
  settings.host_rows = 40;
  settings.levels.push_back({"ssd",
                             [&](size_t row_bytes, int generation) {
                               SsdOptions options = SmallOptions(directory.path() + "/rows-" +
                                                                 std::to_string(generation));
                               options.row_bytes = row_bytes;
                               options.io_uring = false;
                               return std::make_shared<SsdTier>(options, &env);
                             },
                             -1});
  table.tiers().SetCache(settings);
  for (Table* each : {&table, &twin}) each->BindOptimizer(RuleOf(RuleKind::kSgd));
  for (int64_t step = 1; step < 8; ++step) {
    for (Table* each : {&table, &twin}) Train(each, Range(step * 20, step * 20 + 30), step);
  }
  table.tiers().Flush();
  std::atomic<int> refused{0};
  env.FailWith([&](const std::string& call, const std::string& path) {
    if (path.find("rows-0") == std::string::npos || call == "read") return 0;
    ++refused;
    return EIO;
  });
  table.BindOptimizer(RuleOf(RuleKind::kAdam));
  twin.BindOptimizer(RuleOf(RuleKind::kAdam));
  EXPECT_GT(refused, 0);
  EXPECT_STATE(table, StateOf(&twin));
  for (int64_t step = 8; step < 14; ++step) {
    for (Table* each : {&table, &twin}) Train(each, Range(step * 20, step * 20 + 30), step);
  }
  EXPECT_STATE(table, StateOf(&twin));
  env.FailWith(nullptr);
}

// ---------------------------------------------------------------- erased rows

// The queue is full and the tier takes nothing, so that telling it of the erased rows fails.
TEST(TierFaults, AnErasedRowStaysErasedWhateverFails) {
  TableConfig config = Config();
  config.dim = 1024;  // 16,000 rows fill the queue
  Faulty faulty(config, 2800);
  faulty.table.BindOptimizer(RuleOf(RuleKind::kSgd));
  const std::vector<float> ones(size_t{500} * config.dim, 1.0f);
  const auto put = [&](int64_t first, int64_t n) {
    faulty.table.Put(View(Range(first, first + n)), ones.data(), static_cast<size_t>(n));
  };
  // More than what is left of the queue when not one more row fits.
  const std::vector<int64_t> gone = Range(0, 600);
  for (const int64_t first : {0, 300}) put(first, 300);
  faulty.table.tiers().Flush();  // they have copies below
  std::vector<float> out(gone.size() * config.dim);
  faulty.table.LookupTrain(View(gone), {}, out.data());  // this step needs them: they stay here
  faulty.FailWith([](int, const std::string& call) { return call == "write" || call == "erase"; });
  int64_t next = 1000;
  for (const int64_t some : {500, 20, 1}) {
    EXPECT_THROW(for (;; next += some) put(next, some), std::runtime_error);
  }
  ASSERT_EQ(faulty.table.Erase(View(gone)), 600u);
  std::unique_ptr<bool[]> there(new bool[600]);
  EXPECT_THROW(put(next, 1), std::runtime_error);
  EXPECT_THROW(faulty.table.Contains(View(gone), there.get()), std::runtime_error);
  EXPECT_THROW(faulty.table.tiers().Flush(), std::runtime_error);
  faulty.Heal();
  const auto expect_gone = [&] {
    faulty.table.Contains(View(gone), there.get());
    EXPECT_EQ(std::count(there.get(), there.get() + 600, true), 0);
    const std::vector<int64_t> keys = faulty.table.Keys();
    EXPECT_EQ(std::count_if(keys.begin(), keys.end(), [](int64_t key) { return key < 600; }), 0);
    EXPECT_EQ(faulty.table.Size(), keys.size());
  };
  expect_gone();
  faulty.table.tiers().Flush();
  put(next, 100);
  expect_gone();
}

// ---------------------------------------------------------------- clear

class ClearFails : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(UpperRows, ClearFails, ::testing::Values(-1, 60));

TEST_P(ClearFails, AndTheTableIsClearedAllTheSame) {
  for (const bool marked : {false, true}) {
    for (const bool full : {false, true}) {
      SCOPED_TRACE(std::string(marked ? "marked " : "") + (full ? "full" : ""));
      Faulty faulty(Config(), 40, GetParam());
      for (int64_t step = 1; step < 10; ++step) {
        Train(&faulty.table, Range(step * 20, step * 20 + 30), step);
      }
      const TableState before = StateOf(&faulty.table);
      ASSERT_EQ(before.size, 190u);
      if (marked) faulty.table.changes().Mark();
      // Of two levels, the lower one.
      std::atomic<int> clears{0};
      faulty.FailWith([&](int, const std::string& call) {
        if (call == "clear") return ++clears > (GetParam() < 0 ? 0 : 1);
        return full && call == "write";
      });
      try {
        faulty.table.Clear();
        FAIL() << "the tier was not cleared, and nobody was told";
      } catch (const std::runtime_error& error) {
        EXPECT_NE(std::string(error.what()).find("clear fails"), std::string::npos) << error.what();
      }
      // While the tier still fails, and when it is well again.
      EXPECT_EQ(faulty.table.Size(), 0u);
      EXPECT_EQ(faulty.table.Keys().size(), 0u);
      EXPECT_EQ(faulty.table.Export(true).n, 0u);
      faulty.FailWith(nullptr);
      EXPECT_STATE(faulty.table, [&] {
        TableState cleared;
        cleared.step = before.step;
        return cleared;
      }());
      Table twin(Config());
      twin.BindOptimizer(RuleOf(RuleKind::kAdam));
      twin.clock().Set(before.step, 0);
      for (int64_t step = 10; step < 19; ++step) {
        Train(&faulty.table, Range(step * 10, step * 10 + 30), step);
        Train(&twin, Range(step * 10, step * 10 + 30), step);
      }
      EXPECT_STATE(faulty.table, StateOf(&twin));
      faulty.table.tiers().Flush();
      EXPECT_EQ(faulty.RowsOfGeneration(0), twin.Size());
    }
  }
}

// What is put after a clear that the tier has not done yet is there, and what was before is not.
TEST(TierFaults, RowsAfterAClearThatWaits) {
  Faulty faulty;
  Train(&faulty.table, Range(0, 40), 1);
  Train(&faulty.table, Range(40, 80), 2);
  faulty.table.tiers().Flush();
  faulty.FailWith([&](int, const std::string& call) { return call == "clear"; });
  EXPECT_THROW(faulty.table.Clear(), std::runtime_error);
  Train(&faulty.table, Range(20, 60), 3);
  Train(&faulty.table, Range(60, 100), 4);
  Table twin(Config());
  twin.BindOptimizer(RuleOf(RuleKind::kAdam));
  twin.clock().Set(2, 0);
  Train(&twin, Range(20, 60), 3);
  Train(&twin, Range(60, 100), 4);
  EXPECT_STATE(faulty.table, StateOf(&twin));
  faulty.FailWith(nullptr);
  faulty.table.tiers().Flush();
  EXPECT_STATE(faulty.table, StateOf(&twin));
  EXPECT_EQ(faulty.RowsOfGeneration(0), 80u);
}

// ---------------------------------------------------------------- the step

// Rows over the capacity are dropped after the update: where the tiers cannot do it now, a later
// step does.
TEST(TierFaults, AStepDoesNotFailForItsEviction) {
  for (const char* failing : {"read", "scan", "erase"}) {
    SCOPED_TRACE(failing);
    TableConfig config = Config();
    config.eviction.max_rows = 60;
    config.eviction.max_idle_steps = 50;
    Faulty faulty(config);
    Train(&faulty.table, Range(0, 30), 1);
    Train(&faulty.table, Range(30, 60), 2);
    faulty.table.tiers().Flush();
    Table twin(Config());
    twin.BindOptimizer(RuleOf(RuleKind::kAdam));
    for (int64_t first : {0, 30}) Train(&twin, Range(first, first + 30), first / 30 + 1);
    const int64_t ticket = Look(&faulty.table, Range(60, 80));
    const std::vector<float> grad(20 * kDim, 0.25f);
    faulty.table.Accumulate(ticket, grad.data(), 20);
    twin.Accumulate(Look(&twin, Range(60, 80)), grad.data(), 20);
    twin.Step({0.05f, 0, 1, 3, 0});
    faulty.FailWith([&](int, const std::string& call) { return call == failing; });
    faulty.table.Step({0.05f, 0, 1, 3, 0});
    EXPECT_EQ(faulty.table.clock().step(), 3);
    faulty.FailWith(nullptr);
    const TableState trained = StateOf(&faulty.table), expected = StateOf(&twin);
    for (int64_t key = 60; key < 80; ++key) {
      ASSERT_TRUE(trained.rows.at(key) == expected.rows.at(key)) << key;
    }
    if (failing != std::string("erase")) {
      EXPECT_EQ(trained.size, 80u);  // nobody could say which are to go
      EXPECT_GE(Stat(&faulty.table, "failed_evictions"), 1);
    }
    Train(&faulty.table, Range(60, 80), 4);
    EXPECT_EQ(faulty.table.Size(), 60u);
  }
}

// ---------------------------------------------------------------- more than host memory holds

// What the message of a call that was done in part says is what was done.
TEST(TierFaults, APartlyDoneCallSaysWhatWasDone) {
  for (const std::string call : {"put", "erase", "import"}) {
    SCOPED_TRACE(call);
    Faulty faulty;  // 40 rows in host memory: 10 keys at a time
    Table twin(Config());
    twin.BindOptimizer(RuleOf(RuleKind::kAdam));
    for (int64_t step = 1; step < 4; ++step) {
      for (Table* each : {&faulty.table, &twin}) {
        Train(each, Range(step * 30, step * 30 + 30), step);
      }
    }
    faulty.table.tiers().Flush();
    const std::vector<int64_t> keys = Range(40, 100);
    std::vector<float> values(keys.size() * kDim, 2.0f);
    const auto apply = [&](Table* table, size_t n) {
      std::vector<int64_t> some(keys.begin(), keys.begin() + static_cast<ptrdiff_t>(n));
      RowArrays rows;
      rows.keys = some.data();
      rows.values = values.data();
      if (call == "put") table->Put(View(some), values.data(), n);
      if (call == "erase") table->Erase(View(some));
      if (call == "import") table->Import(n, rows, 0);
    };
    std::atomic<int> reads{0};
    faulty.FailWith([&](int, const std::string& each) {
      return (each == "read" || each == "contains") && ++reads >= 3;
    });
    std::string message;
    size_t done = keys.size();
    try {
      apply(&faulty.table, keys.size());
    } catch (const std::runtime_error& error) {
      message = error.what();
      const size_t at = message.find("of the 60 ");
      ASSERT_NE(at, std::string::npos) << message;
      done = std::stoul(message.substr(message.find("the first ", at) + 10));
    }
    faulty.FailWith(nullptr);
    if (call != "import") EXPECT_LT(done, keys.size()) << message;
    if (done > 0) apply(&twin, done);
    EXPECT_STATE(faulty.table, StateOf(&twin));
  }
}

}  // namespace
}  // namespace msrec
