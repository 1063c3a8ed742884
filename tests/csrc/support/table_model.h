// SPDX-License-Identifier: Apache-2.0
//
// What a Table promises, said again in the simplest way: one map from key to row, one float at a
// time. Bit for bit the same where floats are concerned.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "table/table.h"
#include "table_testing.h"
#include "testing.h"

namespace msrec {

struct ModelRow {
  std::vector<float> value, state;
  uint32_t count = 0, last_step = 0, last_time = 0;

  bool operator==(const ModelRow& other) const {
    return SameBits(value, other.value) && SameBits(state, other.state) && count == other.count &&
           last_step == other.last_step && last_time == other.last_time;
  }
};

// A lookup as the model remembers it for its gradient.
struct ModelLookup {
  std::vector<int64_t> ids;
  std::vector<bool> dropped;  // by position
  std::set<int64_t> has_row;  // keys that had a row in it
  size_t grad_rows = 0;
  std::vector<uint32_t> bag;  // by position; empty where not pooled
  std::vector<float> weight;
  std::vector<float> grad;
};

class Model {
 public:
  // `config` as the made table returns it: with the seed its initializer uses.
  explicit Model(const TableConfig& config)
      : config_(config), threshold_(config.admission.threshold), eviction_(config.eviction) {}

  // ---- lookups

  bool Outside(int64_t id) const {
    return config_.vocabulary > 0 && (id < 0 || id >= config_.vocabulary);
  }
  bool Dropped(int64_t id, const IdFilter& filter) const {
    return (filter.has_padding && id == filter.padding_key) || Outside(id);
  }

  ModelLookup Train(const std::vector<int64_t>& ids, const IdFilter& filter) {
    ModelLookup lookup = Plan(ids, filter);
    std::map<int64_t, uint32_t> occurrences;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (!lookup.dropped[i]) ++occurrences[ids[i]];
    }
    for (const auto& [key, n] : occurrences) {
      ModelRow* row = Find(key);
      if (row == nullptr) row = Admit(key, n);
      if (row == nullptr) continue;
      Touch(row, n);
      lookup.has_row.insert(key);
    }
    return lookup;
  }

  ModelLookup Plan(const std::vector<int64_t>& ids, const IdFilter& filter) const {
    ModelLookup lookup;
    lookup.ids = ids;
    lookup.grad_rows = ids.size();
    for (const int64_t id : ids) lookup.dropped.push_back(Dropped(id, filter));
    return lookup;
  }

  // What the lookup reads now, row by row.
  std::vector<float> Read(const ModelLookup& lookup) {
    std::vector<float> out;
    for (size_t i = 0; i < lookup.ids.size(); ++i) {
      const auto value = lookup.dropped[i] ? std::vector<float>(config_.dim) : Value(lookup.ids[i]);
      out.insert(out.end(), value.begin(), value.end());
    }
    return out;
  }

  // Pools what Read gives, and notes in the lookup where each position's gradient comes from.
  std::vector<float> Pool(ModelLookup* lookup, const std::vector<int64_t>& offsets,
                          const float* weights, Combiner combiner) {
    const size_t dim = config_.dim;
    const size_t n = lookup->ids.size();
    const auto values = Read(*lookup);
    std::vector<float> out(offsets.size() * dim);
    lookup->bag.resize(n);
    lookup->weight.resize(n);
    lookup->grad_rows = offsets.size();
    for (size_t b = 0; b < offsets.size(); ++b) {
      const size_t first = offsets[b];
      const size_t last = b + 1 < offsets.size() ? offsets[b + 1] : n;
      double total = 0.0;
      for (size_t i = first; i < last; ++i) {
        if (lookup->dropped[i]) continue;
        const float w = weights != nullptr ? weights[i] : 1.0f;
        total += combiner == Combiner::kSqrtN ? double{w} * w : w;
        for (size_t j = 0; j < dim; ++j) out[b * dim + j] += w * values[i * dim + j];
      }
      float scale = 1.0f;
      if (combiner == Combiner::kMean) scale = total != 0.0 ? float(1.0 / total) : 0.0f;
      if (combiner == Combiner::kSqrtN) scale = total > 0.0 ? float(1.0 / std::sqrt(total)) : 0.0f;
      for (size_t j = 0; j < dim; ++j) out[b * dim + j] *= scale;
      for (size_t i = first; i < last; ++i) {
        lookup->bag[i] = static_cast<uint32_t>(b);
        lookup->weight[i] = (weights != nullptr ? weights[i] : 1.0f) * scale;
      }
    }
    return out;
  }

  // ---- training

  void Bind(const Rule& rule) {
    const bool same = bound_ && rule.kind == rule_.kind &&
                      rule.StateWidth(config_.dim) == rule_.StateWidth(config_.dim);
    rule_ = rule;
    bound_ = true;
    if (same) return;
    for (auto& [key, row] : rows_) FreshState(&row);
  }
  const Rule& rule() const { return rule_; }

  // The gradient of each key over those lookups, in their order, in which it had a row.
  std::map<int64_t, std::vector<float>> Sums(const std::map<int64_t, ModelLookup>& lookups) const {
    const size_t dim = config_.dim;
    std::map<int64_t, std::vector<float>> sums;
    for (const auto& [ticket, l] : lookups) {
      for (size_t i = 0; i < l.ids.size(); ++i) {
        if (l.dropped[i] || l.has_row.count(l.ids[i]) == 0) continue;
        auto& sum = sums[l.ids[i]];
        sum.resize(dim);
        for (size_t j = 0; j < dim; ++j) {
          if (l.bag.empty()) {
            sum[j] += l.grad[i * dim + j];
          } else {
            sum[j] += l.weight[i] * l.grad[l.bag[i] * dim + j];
          }
        }
      }
    }
    return sums;
  }

  // SGD, momentum and Adagrad: enough to see state. The other rules are held to their formulas in
  // kernels_test.cc.
  void Step(const std::map<int64_t, ModelLookup>& lookups, const StepInput& in) {
    for (const auto& [key, sum] : Sums(lookups)) {
      const auto it = rows_.find(key);
      if (it == rows_.end()) continue;
      for (int j = 0; j < config_.dim; ++j) {
        float& w = it->second.value[j];
        const float g = in.grad_scale * sum[j] + in.weight_decay * w;
        if (rule_.kind == RuleKind::kSgd) {
          w -= in.learning_rate * g;
          continue;
        }
        float& s = it->second.state[j];
        if (rule_.kind == RuleKind::kMomentum) {
          s = rule_.momentum * s + g;
          w -= in.learning_rate * s;
        } else {
          s = s + g * g;
          w -= in.learning_rate * g / (std::sqrt(s) + rule_.epsilon);
        }
      }
    }
    ++step_;
    FollowClock();
  }

  // ---- rows by key

  void Put(const std::vector<int64_t>& keys, const std::vector<float>& values) {
    std::set<int64_t> touched;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (Outside(keys[i])) continue;
      ModelRow* row = Find(keys[i]);
      if (row == nullptr) row = Insert(keys[i]);
      candidates_.erase(keys[i]);
      if (touched.insert(keys[i]).second) Touch(row, 1);
      row->value.assign(&values[i * config_.dim], &values[i * config_.dim] + config_.dim);
    }
  }
  size_t Erase(const std::vector<int64_t>& keys) {
    size_t erased = 0;
    for (const int64_t key : keys) {
      erased += Find(key) != nullptr;
      rows_.erase(key);
      candidates_.erase(key);
    }
    return erased;
  }
  bool Contains(int64_t key) {
    return config_.vocabulary > 0 ? !Outside(key) : Find(key) != nullptr;
  }
  void Import(int64_t key, const float* value, const float* state, const uint32_t* count,
              const uint32_t* last_step, const uint32_t* last_time) {
    ModelRow* row = Find(key);
    if (row == nullptr) row = Insert(key);
    candidates_.erase(key);
    row->count = count != nullptr ? *count : 1;
    row->last_step = last_step != nullptr ? *last_step : static_cast<uint32_t>(step_);
    row->last_time = last_time != nullptr && *last_time != 0 ? *last_time : time_;
    if (value != nullptr) row->value.assign(value, value + config_.dim);
    FreshState(row);
    if (state != nullptr) row->state.assign(state, state + row->state.size());
  }

  // ---- whole table

  // All rows, except rows due for eviction. A static table has its whole vocabulary.
  const std::unordered_map<int64_t, ModelRow>& Rows() {
    for (int64_t key = 0; key < config_.vocabulary; ++key) Find(key);
    for (auto it = rows_.begin(); it != rows_.end();) {
      it = Due(it->second) ? rows_.erase(it) : std::next(it);
    }
    return rows_;
  }
  size_t candidates() {
    for (auto it = candidates_.begin(); it != candidates_.end();) {
      it = Due(it->second) ? candidates_.erase(it) : std::next(it);
    }
    return candidates_.size();
  }
  void Clear() {
    rows_.clear();
    candidates_.clear();
  }
  ModelRow* Find(int64_t key) {
    const auto it = rows_.find(key);
    if (config_.vocabulary > 0) {
      if (Outside(key)) return nullptr;
      return it == rows_.end() ? Insert(key) : &it->second;
    }
    if (it == rows_.end()) return nullptr;
    if (!Due(it->second)) return &it->second;
    rows_.erase(it);
    return nullptr;
  }

  void set_threshold(int64_t threshold) { threshold_ = threshold; }
  // First, rows that are due for eviction leave, here and in the next method; with a trigger, no
  // row is due for eviction before the trigger.
  void set_eviction(const Eviction& eviction) {
    DropDue();
    eviction_ = eviction;
    horizon_ = {};
    FollowClock();
  }
  void set_clock(int64_t step, uint32_t time) {
    if (step < step_ || time < time_) DropDue();  // it does not come back
    step_ = step;
    time_ = time;
    horizon_ = {std::min<int64_t>(horizon_.step, step), std::min<int64_t>(horizon_.time, time)};
    FollowClock();
  }
  void set_event_time(uint32_t time) {
    if (time <= time_) return;
    for (auto& [key, row] : rows_) row.last_time = row.last_time == 0 ? time : row.last_time;
    if (time_ == 0) first_time_ = time;
    time_ = time;
    FollowClock();
  }
  void Trigger() { horizon_ = {step_, time_}; }
  // Takes a row that had to go by another rule than age.
  void Drop(int64_t key) { rows_.erase(key); }
  const Eviction& eviction() const { return eviction_; }
  int64_t step() const { return step_; }
  uint32_t time() const { return time_; }

 private:
  struct Candidate {
    uint64_t count = 0;
    uint32_t last_step = 0, last_time = 0;
  };

  template <typename Seen>
  bool Due(const Seen& seen) const {
    const auto old = [](int64_t limit, int64_t now, int64_t last) {
      return limit >= 0 && now - last >= limit;
    };
    // The last step that is done is the one before the clock's.
    return config_.vocabulary == 0 &&
           (old(eviction_.max_idle_steps, horizon_.step - 1, seen.last_step) ||
            old(eviction_.max_idle_seconds, horizon_.time, seen.last_time));
  }
  void DropDue() {
    Rows();
    candidates();
  }
  void FollowClock() {
    if (!eviction_.on_trigger) Trigger();
  }
  std::vector<float> Value(int64_t key) {
    const ModelRow* row = Find(key);
    return row != nullptr ? row->value
                          : std::vector<float>(config_.dim, config_.unknown_value.at(0));
  }
  void FreshState(ModelRow* row) {
    row->state.resize(rule_.StateWidth(config_.dim));
    std::fill(row->state.begin(), row->state.end(), 0.0f);
    std::fill_n(row->state.begin(), rule_.FirstAccumulators(config_.dim),
                rule_.initial_accumulator);
  }
  ModelRow* Insert(int64_t key) {
    ModelRow& row = rows_[key];
    row = ModelRow{};
    row.value.resize(config_.dim);
    FindKernels("base")->initialize(config_.initializer, key, config_.dim, row.value.data());
    FreshState(&row);
    const bool is_static = config_.vocabulary > 0;
    row.last_step = is_static ? 0 : static_cast<uint32_t>(step_);
    row.last_time = is_static ? first_time_ : time_;
    return &row;
  }
  ModelRow* Admit(int64_t key, uint32_t occurrences) {
    if (threshold_ == 0) return nullptr;
    Candidate& candidate = candidates_[key];
    if (Due(candidate)) candidate = Candidate{};
    if (threshold_ == -1 || candidate.count + occurrences >= static_cast<uint64_t>(threshold_)) {
      ModelRow* row = Insert(key);
      row->count = static_cast<uint32_t>(candidate.count);
      candidates_.erase(key);
      return row;
    }
    candidate.count += occurrences;
    candidate.last_step = static_cast<uint32_t>(step_);
    candidate.last_time = time_;
    return nullptr;
  }
  void Touch(ModelRow* row, uint32_t occurrences) {
    if (threshold_ != 0) row->count += occurrences;
    row->last_step = static_cast<uint32_t>(step_);
    row->last_time = time_;
  }

  const TableConfig config_;
  Rule rule_;
  bool bound_ = false;
  int64_t threshold_;
  Eviction eviction_;
  Horizon horizon_;
  int64_t step_ = 0;
  uint32_t time_ = 0, first_time_ = 0;
  std::unordered_map<int64_t, ModelRow> rows_;
  std::unordered_map<int64_t, Candidate> candidates_;
};

}  // namespace msrec
