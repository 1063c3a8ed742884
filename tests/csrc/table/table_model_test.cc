// SPDX-License-Identifier: Apache-2.0
//
// A table's life of random operations beside the model's: growth, admission, eviction, pooling,
// gradients in any order, imports and deltas, all together. After each, what can be seen is the
// same, floats bit for bit. The model knows nothing of tiers: in some lives most rows are below.
#include "table_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "settings.h"
#include "statistics.h"
#include "tiers_below.h"

namespace msrec {
namespace {

std::map<int64_t, ModelRow> Unpack(const ExportedRows& rows) {
  std::map<int64_t, ModelRow> out;
  for (size_t i = 0; i < rows.n; ++i) {
    if (!rows.present[i]) continue;
    ModelRow row;
    const float* value = rows.values.get() + i * rows.dim;
    const float* state = rows.states.get() + i * rows.state_width;
    row.value.assign(value, value + rows.dim);
    row.state.assign(state, state + rows.state_width);
    row.count = rows.counts[i];
    row.last_step = rows.last_steps[i];
    row.last_time = rows.last_times[i];
    EXPECT_TRUE(out.emplace(rows.keys[i], row).second) << "key " << rows.keys[i] << " twice";
  }
  return out;
}

class Life {
 public:
  Life(const TableConfig& config, uint64_t seed, size_t most_ids, uint64_t distinct,
       Below below = Below::kNothing)
      : rng_(seed),
        most_ids_(most_ids),
        distinct_(distinct),
        below_(below, seed),
        table_(config),
        model_(table_.config()) {
    if (below_.any()) table_.tiers().SetCache(below_.Settings(kHostRows));
    Bind();
    table_.eviction().Collect(true);
    table_.clock().SetEventTime(1);  // without one there is no training by age in seconds
    model_.set_event_time(1);
  }

  void Live(int operations) {
    for (int i = 0; i < operations; ++i) {
      OneOperation();
      Settle(false);
      if (::testing::Test::HasFatalFailure()) {
        FAIL() << "in operation " << i << ": " << doing_;
      }
    }
    doing_ = "the end";
    Compare();
  }

  double Stat(const std::string& wanted) {
    for (const auto& [name, value] : Named(table_.Stats())) {
      if (name == wanted) return value;
    }
    return -1.0;
  }

 private:
  bool is_static() const { return table_.config().vocabulary > 0; }

  void OneOperation() {
    switch (rng_.Below(45)) {
      default:
        return TrainLookup();
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
      case 5:
      case 6:
      case 7:
        return Accumulate();
      case 8:
      case 9:
      case 10:
      case 11:
      case 12:
      case 13:
        return Step();
      case 14:
      case 15:
        return EvalLookup();
      case 16:
      case 17:
        return Put();
      case 18:
      case 19:
        return Erase();
      case 20:
        return GetInserting();
      case 21:
      case 22:
        return Import();
      case 23:
        return Compare();
      case 24:
        return SetPolicy();
      case 25:
        return Discard();
      case 26:
        return Mark();
      case 27:
      case 28:
        return Delta();
      case 29:
        if (rng_.OneIn(6)) return Clear();
        return ExportKeys();
      case 31:
      case 32:
        return EventTime();
      case 33:
        return Evict();
      case 34:
        return ForgeHandles();
      case 30:
        if (rng_.OneIn(4)) return Bind();
        return Mistakes();
    }
  }

  std::vector<int64_t> Ids() {
    const size_t n = rng_.OneIn(10) ? 0 : rng_.Below(rng_.OneIn(4) ? most_ids_ : 60);
    auto ids = rng_.Keys(n, distinct_);
    if (is_static()) {
      for (int64_t& id : ids) {
        const int64_t vocabulary = table_.config().vocabulary;
        id = static_cast<int64_t>(static_cast<uint64_t>(id) % vocabulary);
        if (table_.config().outside_zeros && rng_.OneIn(9))
          id = rng_.OneIn(2) ? -1 - id : id + vocabulary;
      }
    }
    return ids;
  }
  // Inside the vocabulary, where there is one.
  std::vector<int64_t> InsideIds() {
    auto ids = Ids();
    ids.erase(
        std::remove_if(ids.begin(), ids.end(), [&](int64_t id) { return model_.Outside(id); }),
        ids.end());
    return ids;
  }
  IdFilter Filter() {
    IdFilter filter;
    filter.has_padding = rng_.OneIn(2);
    filter.padding_key = is_static() ? 0 : EdgeKeys()[rng_.Below(EdgeKeys().size())];
    return filter;
  }

  struct Bags {
    std::vector<int64_t> offsets;
    std::vector<float> weights;
    Combiner combiner;

    BagView view() const {
      return {View(offsets), weights.empty() ? nullptr : weights.data(), combiner};
    }
  };
  Bags RandomBags(size_t ids) {
    Bags bags;
    const size_t n = ids == 0 ? rng_.Below(3) : 1 + rng_.Below(ids + 3);
    for (size_t b = 0; b < n; ++b) bags.offsets.push_back(rng_.Below(ids + 1));
    std::sort(bags.offsets.begin(), bags.offsets.end());
    if (n > 0) bags.offsets[0] = 0;
    if (rng_.OneIn(2)) bags.weights = rng_.Floats(ids, -0.5f, 2.0f);
    bags.combiner = static_cast<Combiner>(rng_.Below(3));
    return bags;
  }

  void TrainLookup() {
    doing_ = "training lookup";
    const auto ids = Ids();
    RoomFor(ids);
    const IdFilter filter = Filter();
    if (rng_.OneIn(3)) {
      doing_ = "pooled training lookup";
      const Bags bags = RandomBags(ids.size());
      std::vector<float> out(bags.offsets.size() * table_.dim(), NAN);
      const int64_t ticket = table_.PoolTrain(View(ids), filter, bags.view(), out.data());
      ModelLookup lookup = model_.Train(ids, filter);
      ASSERT_TRUE(
          SameBits(out, model_.Pool(&lookup, bags.offsets, bags.view().weights, bags.combiner)));
      pending_[ticket] = lookup;
      return;
    }
    std::vector<float> out(ids.size() * table_.dim(), NAN);
    const int64_t ticket = table_.LookupTrain(View(ids), filter, out.data());
    const ModelLookup lookup = model_.Train(ids, filter);
    ASSERT_TRUE(SameBits(out, model_.Read(lookup)));
    pending_[ticket] = lookup;
  }

  // Host memory has to hold the rows of a step, and of a call beside them.
  void RoomFor(const std::vector<int64_t>& ids) {
    if (!below_.any()) return;
    held_.insert(ids.begin(), ids.end());
    if (held_.size() <= kHostRows / 2) return;
    Discard();
    held_.insert(ids.begin(), ids.end());
  }

  // Handles that were not given out are refused, and those given out beside them add nothing.
  void ForgeHandles() {
    doing_ = "forged handles";
    const auto ids = InsideIds();
    if (ids.empty()) return;
    RoomFor(ids);
    std::vector<float> out(ids.size() * table_.dim(), NAN);
    std::vector<std::array<int64_t, 2>> handles(ids.size());
    table_.LookupWithHandles(View(ids), {}, out.data(), handles.data()->data());
    ASSERT_TRUE(SameBits(out, model_.Read(model_.Train(ids, {}))));
    const std::set<std::array<int64_t, 2>> given(handles.begin(), handles.end());
    for (size_t i = 0; i < std::min<size_t>(ids.size(), 8); ++i) {
      std::array<int64_t, 2> forged = handles[rng_.Below(handles.size())];
      switch (rng_.Below(3)) {
        case 0:  // the next place, or the next shard
          forged[0] += rng_.OneIn(2) ? 1 : int64_t{1} << 32;
          break;
        case 1:  // halves of two
          forged[0] = handles[rng_.Below(handles.size())][0];
          break;
        default:
          forged[rng_.Below(2)] ^= int64_t{1} << rng_.Below(63);
      }
      if (given.count(forged) != 0) continue;
      const std::array<int64_t, 2> both[] = {handles[0], forged};
      const auto grad = rng_.Floats(2 * table_.dim());
      ASSERT_THROW(table_.AccumulateByHandle(both[0].data(), 2, grad.data()), StaleHandle);
    }
  }

  void EvalLookup() {
    doing_ = "evaluation lookup";
    auto ids = Ids();
    const IdFilter filter = Filter();
    ModelLookup lookup = model_.Plan(ids, filter);
    if (rng_.OneIn(2)) {
      const Bags bags = RandomBags(ids.size());
      std::vector<float> out(bags.offsets.size() * table_.dim(), NAN);
      table_.PoolEval(View(ids), filter, bags.view(), out.data());
      ASSERT_TRUE(
          SameBits(out, model_.Pool(&lookup, bags.offsets, bags.view().weights, bags.combiner)));
      return;
    }
    std::vector<float> out(ids.size() * table_.dim(), NAN);
    table_.LookupEval(View(ids), filter, out.data());
    ASSERT_TRUE(SameBits(out, model_.Read(lookup)));
    for (const int64_t id : ids) {
      bool contains = false;
      table_.Contains({&id, 1, true}, &contains);
      ASSERT_EQ(contains, model_.Contains(id)) << id;
    }
  }

  void Accumulate() {
    doing_ = "accumulate";
    if (pending_.empty()) return;
    auto it = std::next(pending_.begin(), rng_.Below(pending_.size()));
    ModelLookup& lookup = it->second;
    lookup.grad = rng_.Floats(lookup.grad_rows * table_.dim());
    ASSERT_THROW(table_.Accumulate(it->first, lookup.grad.data(), lookup.grad_rows + 1),
                 std::invalid_argument);
    table_.Accumulate(it->first, lookup.grad.data(), lookup.grad_rows);
    accumulated_.insert(*it);
    pending_.erase(it);
  }

  void Step() {
    doing_ = "step";
    if (rng_.OneIn(3)) {
      double squares = 0.0;
      for (const auto& [key, sum] : model_.Sums(accumulated_)) {
        for (const float g : sum) squares += double{g} * g;
      }
      ASSERT_NEAR(table_.GradientSquaredNorm(), squares, 1e-9 * squares);
    }
    const StepInput input{rng_.Float(0.0f, 0.1f), rng_.OneIn(2) ? 0.0f : 0.01f,
                          rng_.Float(0.1f, 2.0f), model_.step() + 1, 0};
    const double rows = Stat("rows");
    table_.Step(input);
    model_.Step(accumulated_, input);
    Forget();
    ASSERT_EQ(table_.clock().step(), model_.step());
    Settle(true);
    const Eviction& eviction = model_.eviction();
    if (is_static() || eviction.max_rows < 0 || eviction.on_trigger) return;
    // A capacity that was lowered is reached over several steps.
    constexpr double kVictimsAStep = 16384;
    ASSERT_LE(Stat("rows"), std::max<double>(eviction.max_rows, rows - kVictimsAStep));
  }

  // The rows that the table reports as evicted must be due for eviction by age, or, if the rules
  // allow it, must have another valid cause. The model does not decide which rows leave because of
  // the capacity.
  void Settle(bool all_rules) {
    const Eviction& eviction = model_.eviction();
    for (const EvictedKey& evicted : table_.eviction().Take()) {
      const ModelRow* row = model_.Find(evicted.key);
      switch (evicted.reason) {
        case EvictionReason::kIdleSteps:
        case EvictionReason::kIdleSeconds:
          // It may be back already.
          if (row != nullptr && all_rules) FAIL() << evicted.key << " is not due";
          break;
        case EvictionReason::kNorm: {
          ASSERT_TRUE(all_rules && row != nullptr) << evicted.key;
          double squares = 0.0;
          for (const float x : row->value) squares += double{x} * x;
          ASSERT_LT(squares, double{eviction.min_norm} * eviction.min_norm);
          model_.Drop(evicted.key);
          break;
        }
        case EvictionReason::kCapacity:
          ASSERT_TRUE(all_rules && eviction.max_rows >= 0);
          model_.Drop(evicted.key);
          break;
        case EvictionReason::kNone:
          FAIL() << evicted.key;
      }
    }
  }

  void EventTime() {
    doing_ = "event time";
    const auto time = static_cast<uint32_t>(
        std::max<int64_t>(1, int64_t{model_.time()} + static_cast<int64_t>(rng_.Below(40)) - 10));
    table_.clock().SetEventTime(time);
    model_.set_event_time(time);
    ASSERT_EQ(table_.clock().time(), model_.time());
  }

  void Evict() {
    doing_ = "evict";
    const bool at_once = rng_.OneIn(2);
    if (is_static()) {
      ASSERT_THROW(table_.eviction().Evict(at_once), std::invalid_argument);
      return;
    }
    table_.eviction().Evict(at_once);
    model_.Trigger();
    Settle(true);
    if (!at_once) return;
    const size_t rows = model_.Rows().size();
    if (model_.eviction().sweeps()) ASSERT_EQ(Stat("rows"), rows) << "all that is due has gone";
    if (model_.eviction().max_rows >= 0) ASSERT_LE(rows, size_t(model_.eviction().max_rows));
  }

  void Discard() {
    doing_ = "discard";
    table_.DiscardGradients();
    Forget();
  }

  // Gradients of lookups before a step are refused after it.
  void Forget() {
    for (const auto& [ticket, lookup] : pending_) {
      ASSERT_THROW(table_.Accumulate(ticket, nullptr, lookup.grad_rows), std::runtime_error);
    }
    pending_.clear();
    accumulated_.clear();
    held_.clear();
  }

  void Bind() {
    doing_ = "bind optimizer";
    constexpr RuleKind kinds[] = {RuleKind::kSgd, RuleKind::kMomentum, RuleKind::kAdagrad};
    Rule rule;
    rule.kind = kinds[rng_.Below(3)];
    rule.momentum = rng_.Float(0.0f, 1.0f);
    rule.initial_accumulator = 0.1f;
    const bool same = rule.kind == model_.rule().kind;
    table_.BindOptimizer(rule);
    model_.Bind(rule);
    if (!same) Forget();
  }

  void Put() {
    doing_ = "put";
    const auto keys = Ids();
    RoomFor(keys);
    const auto values = rng_.Floats(keys.size() * table_.dim());
    table_.Put(View(keys), values.data(), keys.size());
    model_.Put(keys, values);
  }

  void GetInserting() {
    doing_ = "inserting get";
    const auto ids = Ids();
    RoomFor(ids);
    std::vector<float> out(ids.size() * table_.dim(), NAN);
    const IdFilter filter = Filter();
    table_.Get(View(ids), filter, true, out.data());
    ASSERT_TRUE(SameBits(out, model_.Read(model_.Train(ids, filter))));
  }

  void Erase() {
    doing_ = "erase";
    const auto keys = Ids();
    if (is_static()) {
      ASSERT_THROW(table_.Erase(View(keys)), std::invalid_argument);
      return;
    }
    ASSERT_EQ(table_.Erase(View(keys)), model_.Erase(keys));
  }

  void Import() {
    doing_ = "import";
    auto keys = InsideIds();
    RoomFor(keys);
    const size_t n = keys.size();
    const int32_t width = model_.rule().StateWidth(table_.dim());
    auto values = rng_.Floats(n * table_.dim());
    auto states = rng_.Floats(n * width, 0.0f, 1.0f);
    std::vector<uint32_t> counts(n), steps(n), times(n);
    for (size_t i = 0; i < n; ++i) {
      counts[i] = static_cast<uint32_t>(rng_.Below(100));
      steps[i] = static_cast<uint32_t>(rng_.Below(model_.step() + 3));
      times[i] = static_cast<uint32_t>(rng_.Below(1000));
    }
    RowArrays rows;
    rows.keys = keys.data();
    if (rng_.OneIn(2)) rows.values = values.data();
    if (rng_.OneIn(2)) rows.states = states.data();
    if (rng_.OneIn(2)) rows.counts = counts.data();
    if (rng_.OneIn(2)) rows.last_steps = steps.data();
    if (rng_.OneIn(2)) rows.last_times = times.data();
    table_.Import(n, rows, width);
    for (size_t i = 0; i < n; ++i) {
      model_.Import(keys[i], rows.values != nullptr ? &values[i * table_.dim()] : nullptr,
                    rows.states != nullptr ? states.data() + i * width : nullptr,
                    rows.counts != nullptr ? &counts[i] : nullptr,
                    rows.last_steps != nullptr ? &steps[i] : nullptr,
                    rows.last_times != nullptr ? &times[i] : nullptr);
    }
  }

  void SetPolicy() {
    doing_ = "policy";
    constexpr int64_t thresholds[] = {-1, 0, 1, 2, 5, 40};
    const int64_t threshold = thresholds[rng_.Below(6)];
    table_.admission().SetThreshold(threshold);
    model_.set_threshold(threshold);
    const auto limit = [&](uint64_t most) {
      return rng_.OneIn(2) ? -1 : 1 + static_cast<int64_t>(rng_.Below(most));
    };
    Eviction eviction;
    eviction.max_idle_steps = limit(8);
    eviction.max_idle_seconds = limit(200);
    if (rng_.OneIn(2)) eviction.max_rows = limit(distinct_);
    if (rng_.OneIn(4)) eviction.min_norm = rng_.Float(0.0f, 0.5f);
    eviction.order = rng_.OneIn(2) ? EvictionOrder::kLru : EvictionOrder::kLfu;
    eviction.on_trigger = rng_.OneIn(3);
    table_.eviction().Set(eviction);
    model_.set_eviction(eviction);
    Settle(false);
    const int64_t step = model_.step() + static_cast<int64_t>(rng_.Below(3));
    const auto time = model_.time() + static_cast<uint32_t>(rng_.Below(100));
    table_.clock().Set(step, time);
    model_.set_clock(step, time);
  }

  void Clear() {
    doing_ = "clear";
    table_.Clear();
    model_.Clear();
    Forget();
  }

  // ---- what leaves the table

  void Compare() {
    doing_ += " (compare)";
    const auto& rows = model_.Rows();
    ASSERT_EQ(table_.Size(), rows.size());
    auto keys = table_.Keys();
    std::set<int64_t> distinct(keys.begin(), keys.end());
    ASSERT_EQ(distinct.size(), rows.size());
    auto exported = Unpack(table_.Export(true));
    ASSERT_EQ(exported.size(), rows.size());
    for (const auto& [key, row] : rows) {
      ASSERT_TRUE(distinct.count(key));
      const auto it = exported.find(key);
      ASSERT_NE(it, exported.end()) << key;
      ASSERT_TRUE(it->second == row) << key;
    }
    for (const auto& [name, value] : Named(table_.Stats())) {
      if (name == "rows") ASSERT_EQ(value, rows.size());
      if (name == "candidates") ASSERT_EQ(value, model_.candidates());
    }
  }

  void ExportKeys() {
    doing_ = "export keys";
    auto keys = InsideIds();
    const ExportedRows rows = table_.ExportKeys(View(keys), true);
    ASSERT_EQ(rows.n, keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(rows.keys[i], keys[i]);
      const ModelRow* row = model_.Find(keys[i]);
      ASSERT_EQ(rows.present[i], row != nullptr);
      if (row != nullptr) ASSERT_EQ(rows.counts[i], row->count);
      const std::vector<float> zeros(table_.dim());
      ASSERT_TRUE(SameBits(rows.values.get() + i * rows.dim,
                           row != nullptr ? row->value.data() : zeros.data(), rows.dim));
    }
  }

  void Mark() {
    doing_ = "mark";
    if (marks_.size() > 2) {
      // Everything before the oldest mark that is kept may be forgotten.
      marks_.erase(marks_.begin());
      table_.changes().ReleaseBefore(marks_.begin()->first);
    }
    auto base = Unpack(table_.Export(true));
    const uint64_t mark = table_.changes().Mark();
    ASSERT_EQ(marks_.count(mark), 0u);
    marks_[mark] = base;
  }

  // Base plus delta equals a full save.
  void Delta() {
    doing_ = "delta";
    for (const auto& [mark, base] : marks_) {
      const ExportedRows delta = table_.changes().ExportSince(mark, true);
      auto applied = base;
      std::set<int64_t> seen;
      const auto upserts = Unpack(delta);
      for (size_t i = 0; i < delta.n; ++i) {
        ASSERT_TRUE(seen.insert(delta.keys[i]).second);
        if (!delta.present[i]) applied.erase(delta.keys[i]);
      }
      for (const auto& [key, row] : upserts) applied[key] = row;
      const auto& rows = model_.Rows();
      ASSERT_EQ(applied.size(), rows.size());
      for (const auto& [key, row] : applied) {
        const auto it = rows.find(key);
        ASSERT_NE(it, rows.end()) << key;
        ASSERT_TRUE(row == it->second) << key;
      }
    }
  }

  // None of these may change anything: whatever comes next still equals the model.
  void Mistakes() {
    doing_ = "mistakes";
    const auto ids = InsideIds();
    std::vector<float> out((ids.size() + 4) * table_.dim());
    const int64_t high[] = {0, static_cast<int64_t>(ids.size()) + 1};
    const int64_t falling[] = {0, 1, 0};
    const int64_t late[] = {1};
    for (const IdView offsets :
         {IdView{high, 2, true}, IdView{falling, 3, true}, IdView{late, 1, true}}) {
      ASSERT_THROW(table_.PoolTrain(View(ids), {}, {offsets, nullptr, Combiner::kSum}, out.data()),
                   std::invalid_argument);
      ASSERT_THROW(table_.PoolEval(View(ids), {}, {offsets, nullptr, Combiner::kSum}, out.data()),
                   std::invalid_argument);
    }
    ASSERT_THROW(table_.Put(View(ids), out.data(), ids.size() + 1), std::invalid_argument);
    for (const StepInput& input :
         {StepInput{-0.1f, 0, 1, 1, 0}, StepInput{NAN, 0, 1, 1, 0}, StepInput{0.1f, -1, 1, 1, 0},
          StepInput{0.1f, INFINITY, 1, 1, 0}}) {
      ASSERT_THROW(table_.Step(input), std::invalid_argument);
    }
    ASSERT_THROW(table_.admission().SetThreshold(-2), std::invalid_argument);
    for (const int64_t idle : {0, -2}) {
      Eviction eviction;
      eviction.max_idle_steps = idle;
      ASSERT_THROW(table_.eviction().Set(eviction), std::invalid_argument);
    }
    ASSERT_THROW(table_.clock().Set(-1, 0), std::invalid_argument);
    ASSERT_THROW(table_.changes().ExportSince(0, true), std::invalid_argument);
    ASSERT_THROW(table_.changes().ExportSince(1000000, true), std::invalid_argument);
    RowArrays rows;
    std::vector<int64_t> keys(3);
    rows.keys = keys.data();
    rows.states = out.data();
    const int32_t width = model_.rule().StateWidth(table_.dim());
    ASSERT_THROW(table_.Import(3, rows, width + 1), std::invalid_argument);
    ASSERT_THROW(table_.Accumulate(987654321, out.data(), 1), std::runtime_error);
    if (!is_static()) return;
    keys = {1, table_.config().vocabulary, 2};
    rows.states = nullptr;
    ASSERT_THROW(table_.Import(3, rows, width), std::invalid_argument);
    ASSERT_THROW(table_.ExportKeys(View(keys), true), std::invalid_argument);
    if (table_.config().outside_zeros) return;
    out.resize(3 * table_.dim());
    ASSERT_THROW(table_.LookupTrain(View(keys), {}, out.data()), std::invalid_argument);
    ASSERT_THROW(table_.LookupEval(View(keys), {}, out.data()), std::invalid_argument);
    ASSERT_THROW(table_.Put(View(keys), out.data(), 3), std::invalid_argument);
  }

  static constexpr size_t kHostRows = 160;

  Rng rng_;
  const size_t most_ids_;
  const uint64_t distinct_;
  TiersBelow below_;
  std::set<int64_t> held_;  // keys that calls have asked for since the last step
  Table table_;
  Model model_;
  std::string doing_;
  std::map<int64_t, ModelLookup> pending_, accumulated_;
  std::map<uint64_t, std::map<int64_t, ModelRow>> marks_;
};

class TableLife : public ::testing::TestWithParam<int> {
 protected:
  Threads threads_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Threads, TableLife, ::testing::Values(1, 2, 3));

constexpr int64_t kMostCandidates = std::numeric_limits<int64_t>::max();

TableConfig Config(int dim) {
  TableConfig config;
  config.name = "life";
  config.dim = dim;
  config.seed = 42;
  config.initializer.kind = InitKind::kTruncatedNormal;
  config.initializer.b = 0.1f;
  config.unknown_value = {0.5f};
  return config;
}

// Small tables meet every combination often, large ones cross blocks and grow.
TEST_P(TableLife, EqualsTheModelsLife) {
  std::map<std::string, double> evicted = {
      {"evicted_by_age", 0}, {"evicted_by_capacity", 0}, {"evicted_by_norm", 0}};
  for (uint64_t seed = 0; seed < 40 / kFewer; ++seed) {
    SCOPED_TRACE(seed);
    TableConfig config = Config(1 + static_cast<int>(seed % 17));
    config.admission.threshold = std::vector<int64_t>{-1, 0, 1, 3, 10}[seed % 5];
    // As large as an int64 can be, it is no limit.
    if (seed % 4 == 3) config.admission.max_candidates = kMostCandidates - seed % 20;
    config.eviction.max_idle_steps = std::vector<int64_t>{-1, 1, 4}[seed % 3];
    config.eviction.max_rows = std::vector<int64_t>{-1, 50}[seed % 2];
    Life life(config, seed, 200, 150);
    ASSERT_NO_FATAL_FAILURE(life.Live(600));
    for (auto& [name, total] : evicted) total += life.Stat(name);
  }
  for (const auto& [name, total] : evicted) EXPECT_GT(total, 100 / kFewer) << name;
}

// Rows are in host memory, below, on their way: nothing shows.
TEST_P(TableLife, EqualsTheModelsLifeOverTiers) {
  const std::map<std::string, uint64_t> least = {{"evicted_by_age", 100},
                                                 {"evicted_by_capacity", 100},
                                                 {"evicted_by_norm", 100},
                                                 {"below_rows", 100},
                                                 {"written_down_rows", 100}};
  std::map<std::string, double> seen;
  constexpr Below kinds[] = {Below::kMap, Below::kTwoMaps, Below::kMap, Below::kSsd};
  const uint64_t first = Setting("first_life", 300);
  const uint64_t lives = Setting("lives", 24 / kFewer);
  for (uint64_t seed = first; seed < first + lives; ++seed) {
    SCOPED_TRACE(seed);
    TableConfig config = Config(1 + static_cast<int>(seed % 11));
    config.admission.threshold = std::vector<int64_t>{-1, 1, 3}[seed % 3];
    config.eviction.max_idle_steps = std::vector<int64_t>{-1, 3, 9}[seed % 3];
    config.eviction.max_rows = std::vector<int64_t>{-1, 400}[seed / 2 % 2];
    Life life(config, seed, 60, 700, kinds[seed % 4]);
    ASSERT_NO_FATAL_FAILURE(life.Live(500));
    for (const auto& [name, some] : least) seen[name] += life.Stat(name);
  }
  if (lives < 24) return;
  for (const auto& [name, some] : least) EXPECT_GT(seen[name], some) << name;
}

TEST_P(TableLife, EqualsTheModelsLifeInLargeBatches) {
  for (uint64_t seed = 100; seed < 102; ++seed) {
    SCOPED_TRACE(seed);
    TableConfig config = Config(8);
    config.admission.threshold = seed % 2 == 0 ? 2 : -1;
    config.eviction.max_idle_steps = 5;
    ASSERT_NO_FATAL_FAILURE(Life(config, seed, 40000, 100000).Live(80 / static_cast<int>(kFewer)));
  }
}

TEST_P(TableLife, StaticTablesToo) {
  for (uint64_t seed = 200; seed < 200 + 20 / kFewer; ++seed) {
    SCOPED_TRACE(seed);
    TableConfig config = Config(1 + static_cast<int>(seed % 9));
    config.vocabulary = std::vector<int64_t>{1, 63, 64, 65, 1000}[seed % 5];
    config.outside_zeros = seed % 2 == 0;
    ASSERT_NO_FATAL_FAILURE(Life(config, seed, 3000, 5000).Live(300));
  }
}

}  // namespace
}  // namespace msrec
