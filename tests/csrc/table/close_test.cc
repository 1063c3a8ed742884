// SPDX-License-Identifier: Apache-2.0
//
// Close: from several threads, beside calls, beside those who wait for a prefetched batch. Run
// under ThreadSanitizer too.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "map_tier.h"
#include "table/table.h"
#include "table_testing.h"
#include "testing.h"
#include "workers/registry.h"

namespace msrec {
namespace {

constexpr int kDim = 4;

// A door that calls of a tier wait at.
class Door {
 public:
  void Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    --waiting_;
  }
  void AwaitVisitor() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ > 0; });
  }
  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool open_ = false;
};

struct Tiered {
  explicit Tiered(const std::string& name) {
    TableConfig config;
    config.name = name;
    config.dim = kDim;
    made = CreateTable(config);
    table = made->table.get();
    CacheSettings settings;
    settings.host_rows = 64;
    LevelConfig level;
    level.kind = "ssd";
    level.open = [this](size_t row_bytes, int) {
      tier = std::make_shared<MapTier>(row_bytes);
      return tier;
    };
    settings.levels.push_back(level);
    table->tiers().SetCache(settings);
    Rule rule;
    rule.kind = RuleKind::kSgd;
    table->BindOptimizer(rule);
    for (int step = 0; step < 8; ++step) Train(step);
    table->tiers().Flush();  // so that reads go to the tier
  }
  ~Tiered() { CloseTable(made->id); }

  static std::vector<int64_t> Ids(int step) {
    std::vector<int64_t> ids;
    for (int i = 0; i < 40; ++i) ids.push_back(step * 40 + i);
    return ids;
  }
  void Train(int step) {
    const auto ids = Ids(step);
    std::vector<float> out(ids.size() * kDim);
    const int64_t ticket = table->LookupTrain(View(ids), {}, out.data());
    table->Accumulate(ticket, out.data(), ids.size());
    table->Step({0.1f, 0, 1, step + 1, 0});
  }
  // Reads of the tier wait from now on.
  void Hold(Door* door) {
    tier->FailWith([door](const char* call) {
      if (std::string(call) == "read") door->Pass();
      return false;
    });
  }

  std::shared_ptr<Registered> made;
  Table* table = nullptr;
  std::shared_ptr<MapTier> tier;
};

TEST(ConcurrentClose, TwoThreadsCloseWhileTheTableReadsAhead) {
  for (int round = 0; round < 20; ++round) {
    Tiered it("close twice");
    Door door;
    it.Hold(&door);
    it.table->tiers().Prefetch(View(Tiered::Ids(0)));
    door.AwaitVisitor();  // the table's thread reads from the tier
    std::atomic<int> begun{0}, ended{0};
    std::vector<std::thread> closers;
    for (int t = 0; t < 3; ++t) {
      closers.emplace_back([&, t] {
        ++begun;
        if (t == 0) {
          CloseTable(it.made->id);
        } else {
          it.table->Close();
        }
        EXPECT_EQ(it.tier.use_count(), 1) << "closed means that the tiers are let go";
        ++ended;
      });
    }
    while (begun < 3) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_EQ(ended, 0) << "a tier's call is under way";
    door.Open();
    for (auto& closer : closers) closer.join();
    EXPECT_THROW(it.table->Size(), TableClosed);
  }
}

TEST(ConcurrentClose, ThoseWhoWaitForABatchAreToldSo) {
  for (int round = 0; round < 20; ++round) {
    Tiered it("close waiting");
    Door door;
    it.Hold(&door);
    const int64_t number = it.table->tiers().Prefetch(View(Tiered::Ids(0)));
    door.AwaitVisitor();
    std::atomic<int> told{0};
    std::vector<std::thread> waiters;
    for (int t = 0; t < 3; ++t) {
      waiters.emplace_back([&] {
        try {
          it.table->tiers().PrefetchWait(number);
        } catch (const TableClosed&) {
          ++told;
        }
      });
    }
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::thread closer([&] { CloseTable(it.made->id); });
    for (auto& waiter : waiters) waiter.join();  // they do not wait for the tier
    EXPECT_EQ(told, 3);
    door.Open();
    closer.join();
    EXPECT_EQ(it.tier.use_count(), 1);
  }
}

TEST(ConcurrentClose, AmongCallsOfAllKinds) {
  Threads threads(2);
  for (int round = 0; round < 30; ++round) {
    Tiered it("close among");
    std::atomic<int> told{0};
    std::vector<std::thread> workers;
    const auto work = [&](const std::function<void(int)>& call) {
      workers.emplace_back([&, call] {
        try {
          for (int i = 0;; ++i) call(i);
        } catch (const TableClosed&) {
          ++told;
        }
      });
    };
    work([&](int i) {
      const auto ids = Tiered::Ids(i % 8);
      std::vector<float> out(ids.size() * kDim);
      it.table->LookupEval(View(ids), {}, out.data());
    });
    work([&](int i) {
      const int64_t number = it.table->tiers().Prefetch(View(Tiered::Ids(i % 8)));
      it.table->tiers().PrefetchWait(number);
      it.table->tiers().PrefetchDone(number);
    });
    work([&](int) { it.table->tiers().Flush(); });
    std::this_thread::sleep_for(std::chrono::microseconds(500 * (round % 5)));
    std::thread one([&] { it.table->Close(); });
    std::thread two([&] { CloseTable(it.made->id); });
    one.join();
    two.join();
    for (auto& worker : workers) worker.join();
    EXPECT_EQ(told, 3);
    EXPECT_EQ(it.tier.use_count(), 1);
  }
}

// Python may collect a table, which closes it, while one of the table's own threads runs Python.
TEST(ConcurrentClose, ATableThatItsOwnThreadClosesIsClosedByAnother) {
  for (const bool ahead : {true, false}) {
    Tiered it("close itself");
    const int64_t id = it.made->id;
    std::atomic<bool> closed{false};
    it.tier->FailWith([&closed, id](const char* call) {
      if (std::string(call) == "read" && !closed.exchange(true)) CloseTable(id);
      return false;
    });
    const auto ids = Tiered::Ids(0);
    std::vector<float> out(ids.size() * kDim);
    try {
      if (ahead) {
        it.table->tiers().PrefetchWait(it.table->tiers().Prefetch(View(ids)));
      } else {
        it.table->LookupEval(View(ids), {}, out.data());
      }
    } catch (const TableClosed&) {
    }
    EXPECT_TRUE(closed);
    it.table->Close();  // waits for the other
    EXPECT_THROW(it.table->Size(), TableClosed);
    EXPECT_EQ(it.tier.use_count(), 1);
  }
}

}  // namespace
}  // namespace msrec
