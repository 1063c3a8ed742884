// SPDX-License-Identifier: Apache-2.0
//
// Lives of tables whose memory or tiers fail in the middle of calls, beside the same table in
// memory where nothing fails. After each call that threw, all that can be seen of the table is as
// before the call; it is repeated then, so that lookups that were pending are known to be pending
// yet. Of clear and evict, which a tier can fail after the table has done them, it may be as after.
// Lives named float_mode have no failure: their calls come in another floating-point mode.
//
// The settings `lives` and `first_life` are the number of lives of each kind and the seed of the
// first: a life that fails says the command that repeats it.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "alloc_faults.h"
#include "fault_env.h"
#include "hostile_float_mode.h"
#include "map_tier.h"
#include "no_more_threads.h"
#include "settings.h"
#include "table/table.h"
#include "table_state.h"
#include "table_testing.h"
#include "testing.h"
#include "tier_testing.h"

namespace msrec {
namespace {

// A call that has been repeated so often never goes through: what it suffers must be over before.
constexpr int kMostTries = 3000;

// What a call is made to suffer, more and more of it as it is repeated, until it goes through.
class Faults {
 public:
  virtual ~Faults() = default;
  // Runs fn; try_number counts from 1.
  virtual void Run(int try_number, const std::function<void()>& fn) = 0;
};

// An allocation of the call, then a later one, and so on: half of the calls from the first on. In
// some lives each of them fails, in others about every k-th. Of the calling thread, or of all
// threads.
//
// Beyond kDense allocations the steps grow with the number. A flush over two tiers makes about
// 7000, for the upper one may be walked over for each part that the queue's writer passes down.
// Mostly it goes through long before, as the writer tries again what has failed before the flush
// waits for it. Where both share one CPU, each failure can meet a flush that waits: then it throws
// until the number is beyond the last allocation.
class EachAllocation : public Faults {
 public:
  static constexpr size_t kDense = 1000;  // of the other calls none has so many
  EachAllocation(uint64_t seed, bool all_threads)
      : all_threads_(all_threads), rng_(seed), k_(rng_.OneIn(3) ? 1 : 1 + rng_.Below(24)) {}
  void Run(int try_number, const std::function<void()>& fn) override {
    if (try_number == 1) nth_ = rng_.OneIn(2) ? 0 : static_cast<size_t>(rng_.Below(40));
    const size_t beyond = nth_ > kDense ? nth_ - kDense : 0;
    nth_ += 1 + static_cast<size_t>(rng_.Below(k_ + beyond / 8));
    const AllocationFaults faults =
        all_threads_ ? AllocationFaults::NthOfAllThreads(nth_) : AllocationFaults::Nth(nth_);
    fn();
  }
  size_t nth() const { return nth_; }

 private:
  const bool all_threads_;
  Rng rng_;
  const uint64_t k_;
  size_t nth_ = 0;
};

// No more memory than a budget, which grows.
class Budget : public Faults {
 public:
  explicit Budget(uint64_t seed) : rng_(seed) {}
  void Run(int try_number, const std::function<void()>& fn) override {
    if (try_number == 1) bytes_ = rng_.Below(2000);
    bytes_ += bytes_ / 2 + rng_.Below(3000);
    const AllocationFaults faults = AllocationFaults::Bytes(bytes_);
    fn();
  }

 private:
  Rng rng_;
  size_t bytes_ = 0;
};

// Calls of the tiers from a random one on, fewer and fewer of them.
class TierCalls : public Faults {
 public:
  explicit TierCalls(uint64_t seed) : rng_(seed) {}
  bool Asked(const std::string& call) {
    static_cast<void>(call);
    if (!armed_) return false;
    const int number = ++calls_;
    return number >= first_ && number < last_;
  }
  void Run(int try_number, const std::function<void()>& fn) override {
    calls_ = 0;
    first_ = 1 + static_cast<int>(rng_.Below(static_cast<uint64_t>(2 * try_number)));
    last_ = first_ + (rng_.OneIn(2) ? 1 : 1000);
    armed_ = try_number < 12;
    struct Disarm {
      std::atomic<bool>* armed;
      ~Disarm() { *armed = false; }
    } disarm{&armed_};
    fn();
  }

 private:
  Rng rng_;
  std::atomic<int> calls_{0}, first_{0}, last_{0};
  std::atomic<bool> armed_{false};
};

// Nothing fails: the calling thread flushes denormal numbers and truncates.
class OtherFloatMode : public Faults {
 public:
  void Run(int, const std::function<void()>& fn) override {
    const HostileMode hostile;
    fn();
  }
};

// The system gives no thread to the first try of a call, and some to the pool otherwise.
class NoThreads : public Faults {
 public:
  explicit NoThreads(uint64_t seed) : rng_(seed) {}
  void Run(int try_number, const std::function<void()>& fn) override {
    const int wanted = 1 + static_cast<int>(rng_.Below(3));
    if (try_number > 1) {
      ThreadPool::Global().SetNumThreads(wanted);
      fn();
      return;
    }
    const NoMoreThreads none;
    EXPECT_NO_THROW(ThreadPool::Global().SetNumThreads(wanted))
        << "it goes on with those there are";
    fn();
  }

 private:
  Rng rng_;
};

struct Kind {
  bool tiered;
  std::string faults;
  bool device = false;  // has a device cache, in memory shared with it
};

class Life {
 public:
  Life(const TableConfig& config, const Kind& kind, uint64_t seed)
      : rng_(seed), table_(config), twin_(config) {
    if (kind.faults == "tiers" || kind.faults == "ssd") {
      auto calls = std::make_unique<TierCalls>(seed);
      asked_ = calls.get();
      faults_ = std::move(calls);
    } else if (kind.faults == "budget") {
      faults_ = std::make_unique<Budget>(seed);
    } else if (kind.faults == "float_mode") {
      faults_ = std::make_unique<OtherFloatMode>();
    } else if (kind.faults == "threads") {
      faults_ = std::make_unique<NoThreads>(seed);
    } else {
      faults_ = std::make_unique<EachAllocation>(seed, kind.faults == "all_threads");
    }
    if (kind.tiered) {
      CacheSettings settings;
      settings.host_rows = 240;  // of which a block is a quarter: no call of these takes more ids
      const auto open = [this, seed](size_t row_bytes, int generation) {
        auto tier = std::make_shared<MapTier>(row_bytes);
        if (seed % 3 != 0) tier->MoveRows(seed + static_cast<uint64_t>(generation));
        tier->FailWith(
            [this](const char* call) { return asked_ != nullptr && asked_->Asked(call); });
        return tier;
      };
      const auto open_ssd = [this](size_t row_bytes, int generation) {
        SsdOptions options = SmallOptions(files_->path() + "/" + std::to_string(generation));
        options.row_bytes = row_bytes;
        return std::make_shared<SsdTier>(options, env_.get());
      };
      if (seed % 2 == 0) settings.levels.push_back({"remote", open, 60});
      if (kind.faults == "ssd") {
        files_ = std::make_unique<TestDirectory>(true);
        env_ = std::make_unique<FaultEnv>(seed);
        // Not sync: after one that has failed the tier must be opened again (tier/ssd_tier.h).
        env_->FailWith([this](const std::string& call, const std::string&) {
          return call.rfind("sync", 0) != 0 && asked_->Asked(call) ? EIO : 0;
        });
        settings.levels.push_back({"ssd", open_ssd, -1});
      } else {
        settings.levels.push_back({"ssd", open, -1});
      }
      table_.tiers().SetCache(settings);
    }
    Rule rule;
    rule.kind = RuleKind::kAdagrad;
    for (Table* each : {&table_, &twin_}) {
      each->BindOptimizer(rule);
      each->clock().SetEventTime(1);
    }
    tiered_ = kind.tiered;
    if (tiered_) Fill();
    if (!kind.device) return;
    values_.assign((kSlots + 3) * config.dim, -9.0f);
    DeviceConfig cache;
    cache.rows = kSlots;
    cache.lfu = seed % 3 == 0;
    table_.device().Attach(cache, values_.data());
    GiveStates();
  }

  void Live(int operations) {
    for (int i = 0; i < operations && !::testing::Test::HasFatalFailure(); ++i) {
      Operation();
      if (rng_.OneIn(2)) CompareDigest();
      if (::testing::Test::HasFatalFailure()) FAIL() << "operation " << i << ": " << doing_;
    }
    std::string read_wrong;
    const TableState end = TableState::Of(&table_, &read_wrong);
    ASSERT_EQ(end.Difference(TableState::Of(&twin_, &read_wrong)), "") << "at the end";
    ASSERT_EQ(read_wrong, "");
    // The deltas too.
    if (mark_ != 0 && !::testing::Test::HasFatalFailure()) {
      std::string wrong;
      const ExportedRows delta = table_.changes().ExportSince(mark_, true);
      std::set<int64_t> noted(delta.keys.get(), delta.keys.get() + delta.n);
      const TableState now = TableState::Of(&table_, &wrong);
      for (const auto& [key, row] : now.rows) {
        const auto before = base_.rows.find(key);
        if (before == base_.rows.end() || !(before->second == row)) {
          ASSERT_TRUE(noted.count(key)) << "the delta lacks " << key;
        }
      }
      for (const auto& [key, row] : base_.rows) {
        if (now.rows.count(key) == 0) ASSERT_TRUE(noted.count(key)) << "the delta lacks " << key;
      }
    }
  }
  int thrown() const { return thrown_; }
  int compared_digests() const { return compared_digests_; }

 private:
  // The digest that is kept, if there is one, is that of the rows.
  void CompareDigest() {
    if (mark_ == 0) return;
    const std::optional<uint64_t> kept = table_.changes().KeptDigest();
    if (!kept.has_value()) return;
    uint64_t sum = 0;
    table_.Digests([&](const int64_t*, const uint64_t* digests, size_t n) {
      sum = std::accumulate(digests, digests + n, sum);
    });
    ASSERT_EQ(*kept, sum) << "the digest";
    ASSERT_TRUE(table_.changes().DamagedRows(0, 1).empty());
    ++compared_digests_;
  }

  bool is_static() const { return table_.config().vocabulary > 0; }
  std::vector<int64_t> Ids(size_t most) {
    auto ids = rng_.Keys(rng_.Below(most), 400);
    for (int64_t& id : ids) {
      if (is_static()) id = static_cast<int64_t>(static_cast<uint64_t>(id) % 300);
    }
    return ids;
  }

  // More rows than host memory takes, so that some are below from the beginning.
  void Fill() {
    const std::vector<float> values(60 * static_cast<size_t>(table_.dim()), 0.5f);
    for (int64_t first = 0; first < 300; first += 60) {
      std::vector<int64_t> keys = Range(first, first + 60);
      for (int64_t& key : keys) {  // as Rng::Key has them
        if (!is_static())
          key = static_cast<int64_t>(static_cast<uint64_t>(key) * 0x9e3779b97f4a7c15);
      }
      for (Table* each : {&table_, &twin_}) each->Put(View(keys), values.data(), keys.size());
    }
  }

  void GiveStates() {
    if (values_.empty()) return;
    states_.assign((kSlots + 3) * table_.device().state_width(), -7.0f);
    table_.device().SetStates(states_.data());
  }

  // Half of the lookups of a device cache are made there, the others on the host.
  int64_t LookUp(Table* table, const std::vector<int64_t>& ids, bool in_cache, float* out) {
    if (table == &twin_ || !in_cache) return table->LookupTrain(View(ids), {}, out);
    std::vector<int32_t> slots(ids.size());
    const int64_t ticket = table->device().LookupSlots(View(ids), {}, values_.data(), slots.data());
    const auto dim = static_cast<size_t>(table->dim());
    for (size_t i = 0; i < ids.size(); ++i) {
      std::copy_n(values_.data() + slots[i] * dim, dim, out + i * dim);
    }
    return ticket;
  }

  // `call` is done to the twin, then to the table until it goes through. With may_be_done it may
  // throw when it is done. Often nobody looks at the table after a call, or after each try of it:
  // to look at all of it tells the tiers what has been erased, and more.
  void Do(const std::string& doing, const std::function<void(Table*)>& call,
          bool may_be_done = false) {
    doing_ = doing;
    std::string wrong;
    const TableState before = TableState::Of(&twin_, &wrong);
    call(&twin_);
    const TableState after = TableState::Of(&twin_, &wrong);
    ASSERT_EQ(wrong, "") << "of the twin";
    const bool each_try = may_be_done || !rng_.OneIn(4);
    std::string last;
    for (int number = 1;; ++number) {
      ASSERT_LT(number, kMostTries) << doing << " never goes through: " << last;
      bool threw = false;
      std::string error;
      try {
        faults_->Run(number, [&] { call(&table_); });
      } catch (const std::bad_alloc&) {
        threw = true;
      } catch (const std::exception& e) {
        threw = true;
        last = error = e.what();
      }
      thrown_ += threw;
      if (threw && !each_try) continue;
      if (!threw && each_try && rng_.OneIn(2)) return;
      const TableState now = TableState::Of(&table_, &wrong);
      ASSERT_EQ(wrong, "") << doing << " try " << number << " " << error;
      if (!threw) {
        ASSERT_EQ(now.Difference(after), "") << doing << " try " << number;
        return;
      }
      if (may_be_done && now == after && !(before == after)) return;
      ASSERT_EQ(now.Difference(before), "") << doing << " threw " << error << ", try " << number;
    }
  }

  // Whether a disturbed call on the table throws; one that goes through is done to the twin too.
  bool FailsOnce(const std::function<void(Table*)>& call) {
    try {
      faults_->Run(1 + static_cast<int>(rng_.Below(30)), [&] { call(&table_); });
    } catch (const std::exception&) {
      ++thrown_;
      return true;
    }
    call(&twin_);
    return false;
  }

  void Operation() {
    const auto dim = static_cast<size_t>(table_.dim());
    const auto ids = Ids(rng_.OneIn(4) ? 60 : 20);
    const size_t n = ids.size();
    switch (rng_.Below(26)) {
      default: {
        RoomFor(ids);
        if (::testing::Test::HasFatalFailure()) return;
        std::vector<float> out(n * dim), expected(n * dim);
        int64_t ticket = 0, other = 0;
        const bool in_cache = !values_.empty() && rng_.OneIn(2);
        Do(in_cache ? "lookup in the cache" : "lookup", [&](Table* table) {
          const bool twin = table == &twin_;
          (twin ? other : ticket) =
              LookUp(table, ids, in_cache, twin ? expected.data() : out.data());
        });
        ASSERT_TRUE(SameBits(out, expected));
        pending_.emplace_back(ticket, other);
        sizes_.push_back(n);
        return;
      }
      case 0: {
        RoomFor(ids);
        if (::testing::Test::HasFatalFailure()) return;
        std::vector<int64_t> offsets = {0, static_cast<int64_t>(n / 2)};
        const BagView bags{View(offsets), nullptr, Combiner::kMean};
        std::vector<float> out(2 * dim), expected(2 * dim);
        int64_t ticket = 0, other = 0;
        Do("pooled lookup", [&](Table* table) {
          const bool twin = table == &twin_;
          (twin ? other : ticket) =
              table->PoolTrain(View(ids), {}, bags, twin ? expected.data() : out.data());
        });
        ASSERT_TRUE(SameBits(out, expected));
        pending_.emplace_back(ticket, other);
        sizes_.push_back(2);
        return;
      }
      case 1:
      case 2:
      case 3:
      case 4: {
        if (pending_.empty()) return;
        const size_t at = rng_.Below(pending_.size());
        const auto grad = rng_.Floats(sizes_[at] * dim);
        Do("accumulate", [&](Table* table) { AccumulateAt(table, at, grad); });
        Drop(at);
        return;
      }
      case 5:
      case 6:
      case 7: {
        const StepInput input{0.05f, 0.01f, 1.0f, ++step_, 0};
        Do("step", [&](Table* table) { table->Step(input); });
        return Forget();
      }
      case 8: {
        const auto values = rng_.Floats(n * dim);
        LeaveSlots(ids);
        return Do("put", [&](Table* table) { table->Put(View(ids), values.data(), n); });
      }
      case 9:
        if (is_static()) return;
        LeaveSlots(ids);
        return Do("erase", [&](Table* table) { table->Erase(View(ids)); });
      case 10: {
        const auto values = rng_.Floats(n * dim);
        std::vector<uint32_t> counts(n, 5);
        RowArrays rows;
        rows.keys = const_cast<int64_t*>(ids.data());
        if (rng_.OneIn(2)) rows.values = const_cast<float*>(values.data());
        if (rng_.OneIn(2)) rows.counts = counts.data();
        LeaveSlots(ids);
        return Do("import", [&](Table* table) { table->Import(n, rows, 0); });
      }
      case 11: {
        Rule rule;
        constexpr RuleKind kinds[] = {RuleKind::kSgd, RuleKind::kAdagrad, RuleKind::kAdam};
        rule.kind = kinds[rng_.Below(3)];
        const auto bind = [&](Table* table) { table->BindOptimizer(rule); };
        const bool same = rule.kind == rule_;
        // One that goes through forgets the lookups that are pending; one that fails must not.
        const bool once = !pending_.empty() && rng_.OneIn(2);
        if (once) {
          if (FailsOnce(bind)) {
            doing_ = "accumulate after a bind that failed";
            ASSERT_NO_THROW(AccumulateAt(rng_.Below(pending_.size())));
          } else if (!same) {
            GiveStates();
            Forget();
          }
        }
        rule_ = rule.kind;
        Do("bind", bind);
        if (!same) GiveStates();
        if (!same) Forget();
        return;
      }
      case 12:
        if (!rng_.OneIn(4)) return;
        Do("clear", [&](Table* table) { table->Clear(); }, true);
        return Forget();
      case 13: {
        std::vector<float> out(n * dim), expected(n * dim);
        Do("get", [&](Table* table) {
          table->Get(View(ids), {}, true, table == &twin_ ? expected.data() : out.data());
        });
        ASSERT_TRUE(SameBits(out, expected));
        return;
      }
      case 14:
        if (!tiered_) return;
        if (rng_.OneIn(2)) {
          const size_t most = 1 + rng_.Below(100);
          return Do("scrub", [&](Table* table) {
            if (table != &twin_) table->tiers().Scrub(most);
          });
        }
        return Do("flush", [&](Table* table) {
          if (table != &twin_) table->tiers().Flush();
        });
      case 15:
        if (!tiered_) return;
        return Do("prefetch", [&](Table* table) {
          if (table == &twin_) return;
          const int64_t number = table->tiers().Prefetch(View(ids));
          try {
            table->tiers().PrefetchWait(number);
          } catch (const std::exception&) {
          }
          table->tiers().PrefetchDone(number);
        });
      case 16:
        if (is_static()) return;
        return Do("evict", [&](Table* table) { table->eviction().Evict(true); }, true);
      case 17: {
        if (is_static()) return;
        Eviction eviction = table_.config().eviction;
        eviction.max_idle_steps = rng_.OneIn(2) ? -1 : 1 + static_cast<int64_t>(rng_.Below(6));
        return Do("policy", [&](Table* table) { table->eviction().Set(eviction); });
      }
      case 18: {
        if (mark_ != 0) return;
        uint64_t mark = 0;
        Do("mark", [&](Table* table) { mark = table->changes().Mark(); });
        mark_ = mark;
        std::string wrong;
        base_ = TableState::Of(&table_, &wrong);
        return Do("keep digest", [&](Table* table) { table->changes().KeepDigest(); });
      }
      case 20:
        if (mark_ == 0) return;
        if (rng_.OneIn(2)) {
          Do("delta", [&](Table* table) { table->changes().ExportSince(mark_, true, false); });
        }
        Do("next mark", [&](Table* table) { table->changes().Mark(); });
        return Do("keep digest", [&](Table* table) { table->changes().KeepDigest(); });
      case 19:
        if (n < 1) return;
        Do("discard", [&](Table* table) { table->DiscardGradients(); });
        return Forget();
    }
  }

  void AccumulateAt(Table* table, size_t at, const std::vector<float>& grad) {
    table->Accumulate(table == &twin_ ? pending_[at].second : pending_[at].first, grad.data(),
                      sizes_[at]);
  }
  void AccumulateAt(size_t at) {
    const auto grad = rng_.Floats(sizes_[at] * static_cast<size_t>(table_.dim()));
    for (Table* each : {&twin_, &table_}) AccumulateAt(each, at, grad);
    Drop(at);
  }
  void Drop(size_t at) {
    pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(at));
    sizes_.erase(sizes_.begin() + static_cast<ptrdiff_t>(at));
  }

  void Forget() {
    pending_.clear();
    sizes_.clear();
    looked_up_.clear();
    left_ = 0;
  }

  // A device cache holds the rows of one step's lookups.
  void RoomFor(const std::vector<int64_t>& ids) {
    if (values_.empty()) return;
    looked_up_.insert(ids.begin(), ids.end());
    if (looked_up_.size() + left_ <= kSlots) return;
    Do("discard", [&](Table* table) { table->DiscardGradients(); });
    Forget();
    looked_up_.insert(ids.begin(), ids.end());
  }

  // Rows that others write or erase leave their slots, which stay those of lookups until the step;
  // looked up again, they take others.
  void LeaveSlots(const std::vector<int64_t>& ids) {
    for (const int64_t id : ids) left_ += looked_up_.erase(id);
  }

  static constexpr size_t kSlots = 90;

  Rng rng_;
  std::unique_ptr<Faults> faults_;
  TierCalls* asked_ = nullptr;
  std::unique_ptr<TestDirectory> files_;
  std::unique_ptr<FaultEnv> env_;  // of the tier on files
  Table table_, twin_;
  bool tiered_ = false;
  std::vector<std::pair<int64_t, int64_t>> pending_;  // tickets of table and twin
  std::vector<size_t> sizes_;
  std::vector<float> values_, states_;  // of the device cache
  std::set<int64_t> looked_up_;         // since the last step
  size_t left_ = 0;                     // of these, without their slots
  int64_t step_ = 0;
  RuleKind rule_ = RuleKind::kAdagrad;
  uint64_t mark_ = 0;
  TableState base_;
  std::string doing_;
  int thrown_ = 0;
  int compared_digests_ = 0;
};

class TableFaults : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Lives, TableFaults,
                         ::testing::Values(Kind{false, "each"}, Kind{true, "each"},
                                           Kind{false, "budget"}, Kind{true, "budget"},
                                           Kind{true, "tiers"}, Kind{true, "ssd"},
                                           Kind{false, "all_threads"}, Kind{true, "all_threads"},
                                           Kind{false, "float_mode"}, Kind{true, "float_mode"},
#ifndef MSREC_SANITIZED
                                           Kind{false, "threads"}, Kind{true, "threads"},
#endif
                                           Kind{false, "each", true}, Kind{true, "each", true},
                                           Kind{true, "tiers", true}),
                         [](const auto& info) {
                           return std::string(info.param.device ? "device_" : "") +
                                  (info.param.tiered ? "tiered_" : "memory_") + info.param.faults;
                         });

// Most lives are short: what one of them meets first depends on little, and there are more of them.
// Under sanitizers, which make each ten times as slow, there are few.
constexpr uint64_t kLives = kFewer > 1 ? 10 : 160;
constexpr int kShort = 12, kLong = kFewer > 1 ? 40 : 120;
bool IsLong(uint64_t seed) { return seed % 23 == 0; }

TEST_P(TableFaults, EveryCallDoesAllOrNothing) {
  const std::string& faults = GetParam().faults;
  const bool all_threads = faults == "all_threads";
  const size_t before = AllocationFaults::on_other_threads();
  Threads threads(all_threads ? 3 : 1);
  TableConfig of_all;
  of_all.name = "faults";
  of_all.dim = 3;
  of_all.initializer.kind = InitKind::kNormal;
  of_all.initializer.b = 0.1f;
  // Have the thread allocate what it keeps for workers and their scratch.
  const std::vector<int64_t> ids = Range(0, 20000);
  std::vector<float> out(ids.size() * 3);
  Table(of_all).LookupEval(View(ids), {}, out.data());
  int thrown = 0, compared_digests = 0;
  const uint64_t first = Setting("first_life", 0);
  const uint64_t lives = Setting("lives", kLives);
  for (uint64_t seed = first; seed < first + lives; ++seed) {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    SCOPED_TRACE("again: MINDSPORE_REC_TESTS=lives=1,first_life=" + std::to_string(seed) +
                 " msrec_tests --gtest_filter=" + test->test_suite_name() + "." + test->name());
    TableConfig config = of_all;
    config.admission.threshold = std::vector<int64_t>{-1, 3, -1, 2}[seed % 4];
    if (seed % 8 == 3) {
      config.admission.kind = AdmissionKind::kSketch;
      config.admission.sketch_bytes = 4096;
    }
    if (seed % 6 == 5) {
      config.admission.threshold = -1;
      config.vocabulary = 300;
    }
    Life life(config, GetParam(), seed);
    life.Live(IsLong(seed) ? kLong : kShort);
    if (HasFatalFailure()) return;
    thrown += life.thrown();
    compared_digests += life.compared_digests();
  }
  if (lives < kLives) return;
  EXPECT_GT(compared_digests, kFewer > 1 ? 0 : 20);
  if (faults != "float_mode" && faults != "threads") EXPECT_GT(thrown, 20);
  // Under sanitizers there are so few lives that perhaps no worker allocates in them.
  if (all_threads && kFewer == 1) EXPECT_GT(AllocationFaults::on_other_threads(), before);
}

// In some life each allocation of a small call fails, and in all of them a call goes through before
// the tries are over, however many it makes.
TEST(FaultsOfEachAllocation, AreOverInTime) {
  constexpr size_t kMany = 20000;  // three times as many as a flush, which has the most
  const auto allocate = [] {
    for (size_t i = 0; i < kMany; ++i) ::operator delete(::operator new(1));
  };
  bool each = false;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    EachAllocation faults(seed, seed % 2 == 0);
    std::set<size_t> failed;
    bool threw = true;
    for (int number = 1; threw; ++number) {
      ASSERT_LT(number, kMostTries);
      threw = false;
      try {
        faults.Run(number, allocate);
      } catch (const std::bad_alloc&) {
        threw = true;
        failed.insert(faults.nth());
      }
    }
    const auto dense = std::distance(failed.begin(), failed.upper_bound(EachAllocation::kDense));
    each |= dense == static_cast<ptrdiff_t>(EachAllocation::kDense);
  }
  EXPECT_TRUE(each);
}

// If any allocation of a call fails, the table keeps the digest of its present rows, or no digest.
TEST(FaultsOfDigests, ADigestIsRightOrIsNotKept) {
  const Threads threads(1);
  TableConfig config = NormalConfig("digests", 2);
  const auto more = Range(30, 70);
  const std::vector<float> values(2 * more.size(), 0.5f);
  uint64_t mark = 0;
  const std::vector<std::pair<const char*, std::function<void(Table*)>>> calls = {
      {"mark", [](Table* table) { table->changes().Mark(); }},
      {"delta", [&](Table* table) { table->changes().ExportSince(mark, true); }},
      {"digest", [](Table* table) { table->changes().KeptDigest(); }},
      {"put", [&](Table* table) { table->Put(View(more), values.data(), more.size()); }},
      {"erase", [&](Table* table) { table->Erase(View(more)); }},
      {"evict", [](Table* table) { table->eviction().Evict(true); }},
      {"clear", [](Table* table) { table->Clear(); }},
      {"keep", [](Table* table) { table->changes().KeepDigest(); }},
      {"step", [](Table* table) { table->Step({0.1f, 0.0f, 1.0f, 4, 0}); }}};
  size_t dropped = 0;
  for (const bool tiered : {false, true}) {
    for (const int64_t idle : {-1, 2}) {
      for (const auto& [name, call] : calls) {
        bool failed = true;
        for (size_t nth = 1; failed; ++nth) {
          SCOPED_TRACE(std::string(name) + ", allocation " + std::to_string(nth) +
                       (tiered ? ", tiered" : "") + (idle > 0 ? ", by age" : ""));
          config.eviction.max_idle_steps = idle;
          Table table(config);
          if (tiered) {
            CacheSettings settings;
            settings.host_rows = 200;
            settings.levels.push_back(
                {"ssd", [](size_t bytes, int) { return std::make_shared<MapTier>(bytes); }, -1});
            table.tiers().SetCache(settings);
          }
          table.BindOptimizer(RuleOf(RuleKind::kAdagrad));
          mark = table.changes().Mark();
          table.changes().KeepDigest();
          for (int64_t step = 1; step <= 3; ++step) {
            const auto ids = Range(10 * step, 10 * step + 20);
            std::vector<float> out(2 * ids.size());
            const int64_t ticket = table.LookupTrain(View(ids), {}, out.data());
            table.Accumulate(ticket, values.data(), ids.size());
            if (step < 3) table.Step({0.1f, 0.0f, 1.0f, step, 0});
          }
          try {
            const AllocationFaults faults = AllocationFaults::Nth(nth);
            call(&table);
          } catch (const OutOfMemory&) {
          }
          failed = AllocationFaults::happened();
          table.changes().Mark();  // no call compares its rows with digests from now on
          const std::optional<uint64_t> kept = table.changes().KeptDigest();
          dropped += failed && !kept.has_value();
          if (!kept.has_value()) continue;
          uint64_t sum = 0;
          table.Digests([&](const int64_t*, const uint64_t* digests, size_t n) {
            sum = std::accumulate(digests, digests + n, sum);
          });
          ASSERT_EQ(*kept, sum);
          ASSERT_TRUE(table.changes().DamagedRows(0, 1).empty());
        }
      }
    }
  }
  EXPECT_GT(dropped, 0u);
}

// Rows are quantised in parts of 2^18 keys. If memory runs out, the message says which rows are
// set.
TEST(FaultsOfQuantisedRows, AreSaidByTheMessage) {
  constexpr size_t kPart = size_t{1} << 18, kKeys = 2 * kPart;
  const std::vector<int64_t> keys = Range(0, kKeys);
  const std::vector<float> values(2 * kKeys, 1.0f);
  std::map<size_t, std::string> messages;  // by the number of rows that are set
  for (size_t bytes = size_t{1} << 20; messages.count(kKeys) == 0; bytes += bytes / 16) {
    Table table(NormalConfig("quantised", 2));
    table.quantised().Quantise(8);
    std::string message;
    try {
      const AllocationFaults faults = AllocationFaults::Bytes(bytes);
      table.Put(View(keys), values.data(), kKeys);
    } catch (const OutOfMemory& error) {
      message = error.what();
    }
    messages[table.Size()] = message;
  }
  const std::string begin = "table 'quantised': out of memory; the ";
  EXPECT_EQ(messages, (std::map<size_t, std::string>{
                          {0, begin + "table is as it was"},
                          {kPart, begin + "first 262144 of 524288 rows are set, and the other rows "
                                          "are as they were"},
                          {kKeys, ""}}));
}

}  // namespace
}  // namespace msrec
