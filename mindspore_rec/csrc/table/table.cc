// SPDX-License-Identifier: Apache-2.0
#include "table/table.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>

#include "table/for_shards.h"
#include "util/headroom.h"

namespace msrec {
namespace {

// The ticket of a lookup in a table that is not trainable.
constexpr int64_t kFrozenTicket = -1;

// Lookups without a gradient that are remembered: a forward pass alone leaves its ticket behind.
constexpr size_t kMaxOutstanding = 512;
constexpr size_t kMaxSpare = 4;
constexpr int32_t kMaxDim = 8192;
constexpr uint32_t kDroppedRow = std::numeric_limits<uint32_t>::max();

thread_local KeySet key_set_scratch;

}  // namespace

// Takes the table for one call, and turns what can go wrong inside into the table's own exceptions.
class Table::Guard {
 public:
  explicit Guard(Table* table) : lock_(table->mutex_) {
    if (table->closed_) throw TableClosed(table->Where("is closed"));
  }

  template <typename Fn>
  static auto Run(Table* table, Fn fn) {
    Guard guard(table);
    try {
      return fn();
    } catch (const std::bad_alloc&) {
      throw OutOfMemory(table->Where("out of memory; the table is as it was"));
    }
  }

 private:
  std::lock_guard<std::mutex> lock_;
};

void Table::CheckThreshold(int64_t threshold) const {
  if (threshold >= -1 && threshold <= kMaxCount) return;
  throw std::invalid_argument(Where("admission threshold must be in [-1, " +
                                    std::to_string(kMaxCount) + "], got " +
                                    std::to_string(threshold)));
}

void Table::CheckMaxIdleSteps(int64_t steps) const {
  if (steps == -1 || steps >= 1) return;
  throw std::invalid_argument(
      Where("max_idle_steps must be -1 or >= 1, got " + std::to_string(steps)));
}

Table::Table(const TableConfig& config) : config_(config) {
  if (config.dim < 1 || config.dim > kMaxDim) {
    throw std::invalid_argument(
        Where("dim must be in [1, 8192], got " + std::to_string(config.dim)));
  }
  if (config.vocabulary < 0 || config.vocabulary > (int64_t{1} << 35)) {
    throw std::invalid_argument(
        Where("vocabulary must be in [0, 2^35], got " + std::to_string(config.vocabulary)));
  }
  CheckThreshold(config.admission.threshold);
  CheckMaxIdleSteps(config.eviction.max_idle_steps);
  config_.initializer.seed = Mix64(config.seed ^ HashBytes(config.name.data(), config.name.size()));
  context_.layout = {config.dim, 0};
  context_.initializer = config_.initializer;
  context_.admission = config.admission;
  context_.eviction = config.eviction;
  context_.vocabulary = config.vocabulary;
  context_.kernels = &ActiveKernels();
  default_row_.assign(config.dim, config.unknown_value);
  try {
    for (int s = 0; s < kNumShards; ++s) shards_.push_back(std::make_unique<Shard>(&context_, s));
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(Where("out of memory while creating it"));
  }
}

Table::~Table() = default;

void Table::Close() {
  std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  ForgetStep();
  spare_.clear();
  shards_.clear();
}

uint64_t Table::Structure() const {
  uint64_t version = relayouts_;
  for (const auto& shard : shards_) version += shard->stats().evicted + shard->stats().erased;
  return version;
}

void Table::RequireOptimizer() const {
  if (has_optimizer_) return;
  throw NoOptimizer(Where(
      "is looked up in training mode but no optimizer covers it, so it would never learn; pass "
      "net.trainable_params() to an optimizer of mindspore_rec.optim, or freeze the table with "
      "requires_grad=False, or call set_train(False) on the network"));
}

// ---------------------------------------------------------------- batches

std::unique_ptr<Batch> Table::NewBatch(const IdView& ids, const IdFilter& filter) {
  if (ids.size >= std::numeric_limits<uint32_t>::max()) {
    throw std::invalid_argument(
        Where("a batch must have fewer than 2^32 - 1 ids, got " + std::to_string(ids.size)));
  }
  std::unique_ptr<Batch> batch;
  if (spare_.empty()) {
    batch = std::make_unique<Batch>();
  } else {
    batch = std::move(spare_.back());
    spare_.pop_back();
  }
  IdFilter full = filter;
  full.vocabulary = config_.vocabulary;
  batch->pooled = false;
  batch->grad_rows = ids.size;
  batch->Partition(ids, full);
  const bool dropped = batch->begin[kNumShards] < ids.size;
  if (dropped && full.identity() && !config_.outside_zeros) {
    for (size_t i = 0; i < ids.size; ++i) {
      const int64_t id = ids[i];
      if (full.Inside(id) || (full.has_padding && id == full.padding_key)) continue;
      Recycle(std::move(batch));
      throw std::invalid_argument(Where("id " + std::to_string(id) + " at position " +
                                        std::to_string(i) + " is outside the vocabulary [0, " +
                                        std::to_string(config_.vocabulary) + ")"));
    }
  }
  return batch;
}

void Table::Recycle(std::unique_ptr<Batch> batch) {
  if (spare_.size() < kMaxSpare) spare_.push_back(std::move(batch));
}

int64_t Table::Keep(std::unique_ptr<Batch> batch) {
  while (outstanding_.size() >= kMaxOutstanding) {
    Recycle(std::move(outstanding_.begin()->second));
    outstanding_.erase(outstanding_.begin());
  }
  const int64_t ticket = next_ticket_++;
  batch->ticket = ticket;
  batch->structure = Structure();
  outstanding_.emplace(ticket, std::move(batch));
  return ticket;
}

// unique | fetch rows | expand, shard by shard while its lines are in cache. A null `out` skips the
// last.
void Table::Resolve(Batch* batch, void (Shard::*find)(Batch*), float* out) {
  const int dim = config_.dim;
  if (out != nullptr && batch->begin[kNumShards] < batch->n) {
    std::memset(out, 0, batch->n * dim * sizeof(float));
  }
  bool unique_first = false;
  if (find != &Shard::FindOnly) {
    // Before anything changes: afterwards no row can fail to be allocated.
    for (int s = 0; s < kNumShards; ++s) {
      if (!shards_[s]->HasRoom(batch->begin[s + 1] - batch->begin[s])) unique_first = true;
    }
  }
  if (unique_first) {
    // Distinct keys may be far fewer than positions: memory is mapped for those only.
    ForShards(*batch, [&](int s) { batch->MakeUnique(s, &key_set_scratch); });
    for (int s = 0; s < kNumShards; ++s) {
      if (batch->begin[s + 1] != batch->begin[s]) shards_[s]->Reserve(batch->unique[s]);
    }
  }
  if (find != &Shard::FindOnly) RequireHeadroom(HeadroomForKeys(batch->n));
  ForShards(*batch, [&](int s) {
    if (!unique_first) batch->MakeUnique(s, &key_set_scratch);
    (shards_[s].get()->*find)(batch);
    if (out == nullptr) return;
    const size_t first = batch->begin[s];
    context_.kernels->gather(batch->row.data() + first, batch->inverse.data() + first,
                             batch->pos.data() + first, batch->begin[s + 1] - first,
                             default_row_.data(), dim, out);
  });
}

int64_t Table::Lookup(const IdView& ids, const IdFilter& filter, const BagView* bags, bool train,
                      float* out) {
  return Guard::Run(this, [&] {
    const bool trained = train && trainable_;
    if (trained) RequireOptimizer();
    if (bags != nullptr) CheckBags(ids, *bags);
    auto batch = NewBatch(ids, filter);
    const auto find = trained ? &Shard::FindOrInsert : &Shard::FindOnly;
    if (bags == nullptr) {
      Resolve(batch.get(), find, out);
    } else {
      Resolve(batch.get(), find, nullptr);
      Pool(batch.get(), ids, *bags, out);
    }
    if (trained) return Keep(std::move(batch));
    Recycle(std::move(batch));
    return kFrozenTicket;
  });
}

int64_t Table::LookupTrain(const IdView& ids, const IdFilter& filter, float* out) {
  return Lookup(ids, filter, nullptr, true, out);
}

void Table::LookupEval(const IdView& ids, const IdFilter& filter, float* out) {
  Lookup(ids, filter, nullptr, false, out);
}

int64_t Table::PoolTrain(const IdView& ids, const IdFilter& filter, const BagView& bags,
                         float* out) {
  return Lookup(ids, filter, &bags, true, out);
}

void Table::PoolEval(const IdView& ids, const IdFilter& filter, const BagView& bags, float* out) {
  Lookup(ids, filter, &bags, false, out);
}

// ---------------------------------------------------------------- pooled lookups

void Table::CheckBags(const IdView& ids, const BagView& bags) const {
  int64_t before = 0;
  for (size_t b = 0; b < bags.offsets.size; ++b) {
    const int64_t offset = bags.offsets[b];
    if (offset < before || offset > static_cast<int64_t>(ids.size) || (b == 0 && offset != 0)) {
      throw std::invalid_argument(
          Where("offsets must start at 0 and rise to at most the number of ids, " +
                std::to_string(ids.size) + "; offsets[" + std::to_string(b) + "] is " +
                std::to_string(offset)));
    }
    before = offset;
  }
  if (bags.offsets.size == 0 && ids.size > 0) {
    throw std::invalid_argument(Where("offsets is empty but there are ids"));
  }
}

void Table::Pool(Batch* batch, const IdView& ids, const BagView& bags, float* out) {
  const size_t num_bags = bags.offsets.size;
  const int dim = config_.dim;
  batch->pooled = true;
  batch->grad_rows = num_bags;
  batch->bag.Reset(batch->n);
  batch->weight.Reset(batch->n);
  Buffer<uint32_t> row_of_pos;
  row_of_pos.Reset(batch->n);
  if (batch->begin[kNumShards] < batch->n) {
    std::fill_n(row_of_pos.data(), batch->n, kDroppedRow);
  }
  ForShards(*batch, [&](int s) {
    const size_t first = batch->begin[s];
    for (size_t i = first; i < batch->begin[s + 1]; ++i) {
      row_of_pos[batch->pos[i]] = static_cast<uint32_t>(first + batch->inverse[i]);
    }
  });
  constexpr size_t kBlock = 256;
  ThreadPool::Global().ParallelFor(
      static_cast<int64_t>((num_bags + kBlock - 1) / kBlock), [&](int64_t block) {
        std::vector<uint32_t> rows;
        std::vector<float> weights;
        const size_t last_bag = std::min(num_bags, (static_cast<size_t>(block) + 1) * kBlock);
        for (size_t b = block * kBlock; b < last_bag; ++b) {
          const auto first = static_cast<size_t>(bags.offsets[b]);
          const size_t last =
              b + 1 < num_bags ? static_cast<size_t>(bags.offsets[b + 1]) : ids.size;
          rows.clear();
          weights.clear();
          double total = 0.0;
          for (size_t i = first; i < last; ++i) {
            if (row_of_pos[i] == kDroppedRow) continue;
            const float w = bags.weights != nullptr ? bags.weights[i] : 1.0f;
            total += bags.combiner == Combiner::kSqrtN ? static_cast<double>(w) * w : w;
            rows.push_back(row_of_pos[i]);
            weights.push_back(w);
          }
          float scale = 1.0f;
          if (bags.combiner == Combiner::kMean)
            scale = total != 0.0 ? static_cast<float>(1.0 / total) : 0.0f;
          if (bags.combiner == Combiner::kSqrtN) {
            scale = total > 0.0 ? static_cast<float>(1.0 / std::sqrt(total)) : 0.0f;
          }
          context_.kernels->pool(batch->row.data(), rows.data(), weights.data(), rows.size(),
                                 default_row_.data(), scale, dim, out + b * dim);
          for (size_t i = first; i < last; ++i) {
            batch->bag[i] = static_cast<uint32_t>(b);
            batch->weight[i] = (bags.weights != nullptr ? bags.weights[i] : 1.0f) * scale;
          }
        }
      });
}

// ---------------------------------------------------------------- gradients and the step

void Table::Accumulate(int64_t ticket, const float* grad, size_t grad_rows) {
  Guard::Run(this, [&] {
    if (ticket == kFrozenTicket) return;
    const auto it = outstanding_.find(ticket);
    if (it == outstanding_.end()) {
      throw std::runtime_error(Where(
          "got a gradient for a lookup it no longer knows (ticket " + std::to_string(ticket) +
          "): a step was taken, or gradients discarded, between the forward and backward pass"));
    }
    if (it->second->grad_rows != grad_rows) {
      throw std::invalid_argument(Where("the gradient has " + std::to_string(grad_rows) +
                                        " rows, its lookup had " +
                                        std::to_string(it->second->grad_rows)));
    }
    // What can fail comes first: the lookup is known until its gradient is in.
    if (outstanding_.begin()->first < ticket) {
      const size_t floats = grad_rows * config_.dim;
      Deferred& waiting = deferred_[ticket];
      try {
        waiting.grad.assign(grad, grad + floats);
      } catch (...) {
        deferred_.erase(ticket);
        throw;
      }
      waiting.batch = std::move(it->second);
      outstanding_.erase(it);
      return;
    }
    gradients_.Add(*it->second, grad, config_.dim, *context_.kernels);
    Recycle(std::move(it->second));
    outstanding_.erase(it);
    MergeDeferred(false);
  });
}

// Adds waiting gradients in the order of their lookups, up to the first lookup that may still
// report.
void Table::MergeDeferred(bool all) {
  while (!deferred_.empty()) {
    auto first = deferred_.begin();
    if (!all && !outstanding_.empty() && outstanding_.begin()->first < first->first) return;
    gradients_.Add(*first->second.batch, first->second.grad.data(), config_.dim, *context_.kernels);
    Recycle(std::move(first->second.batch));
    deferred_.erase(first);
  }
}

void Table::ForgetStep() {
  for (auto& [ticket, batch] : outstanding_) Recycle(std::move(batch));
  outstanding_.clear();
  deferred_.clear();
  gradients_.Reset();
}

void Table::DiscardGradients() {
  Guard::Run(this, [&] { ForgetStep(); });
}

double Table::GradientSquaredNorm() {
  return Guard::Run(this, [&] {
    MergeDeferred(true);
    double parts[kNumShards] = {};
    ForAllShards([&](int s) {
      GradientSum::Part& part = gradients_.part(s);
      parts[s] =
          context_.kernels->squared_norm(config_.dim, part.row.data(), part.sum.data(), part.n);
    });
    double total = 0.0;
    for (const double part : parts) total += part;
    return total;
  });
}

void Table::Step(const StepInput& input) {
  Guard::Run(this, [&] {
    RequireOptimizer();
    const auto require = [&](bool fine, const char* argument, const char* range, float got) {
      if (!fine) {
        throw std::invalid_argument(
            Where(std::string(argument) + " must be " + range + ", got " + std::to_string(got)));
      }
    };
    require(std::isfinite(input.learning_rate) && input.learning_rate >= 0.0f, "learning_rate",
            "a finite number >= 0", input.learning_rate);
    require(std::isfinite(input.weight_decay) && input.weight_decay >= 0.0f, "weight_decay",
            "a finite number >= 0", input.weight_decay);
    require(context_.rule.kind != RuleKind::kFtrl || input.learning_rate > 0.0f, "learning_rate",
            "> 0 with ftrl, which divides by it", input.learning_rate);
    if (input.binding != 0 && input.binding != binding_) {
      throw std::runtime_error(
          Where("another optimizer was created for this table later; this one can no longer step"));
    }
    MergeDeferred(true);
    StepConstants c{context_.rule, input, 0.0f, context_.rule.epsilon, 2.0f * context_.rule.l2};
    const double t = static_cast<double>(std::max<int64_t>(input.step, 1));
    const double correction2 = std::sqrt(1.0 - std::pow(static_cast<double>(c.rule.beta2), t));
    const double correction1 = 1.0 - std::pow(static_cast<double>(c.rule.beta1), t);
    c.adam_lr = static_cast<float>(input.learning_rate * correction2 / correction1);
    // AdamW as published corrects the second moment before epsilon is added; MindSpore's Adam
    // after.
    if (c.rule.kind == RuleKind::kAdamW)
      c.adam_eps = static_cast<float>(c.rule.epsilon * correction2);
    if (!gradients_.empty()) {
      const bool stale = gradients_.structure() != Structure();
      const bool record = oldest_mark_ != 0;
      ForAllShards([&](int s) {
        GradientSum::Part& part = gradients_.part(s);
        Shard& shard = *shards_[s];
        if (stale) {
          for (size_t i = 0; i < part.n; ++i) {
            if (part.row[i] != nullptr) part.row[i] = shard.Find(part.key[i]);
          }
        }
        context_.kernels->step(c, config_.dim, part.row.data(), part.sum.data(), part.n);
        for (size_t i = 0; record && i < part.n; ++i) {
          if (part.row[i] != nullptr) shard.Touch(part.row[i]);
        }
      });
    }
    ForgetStep();
    ++context_.step;
    if (context_.eviction.enabled()) {
      ForAllShards([&](int s) { shards_[s]->EvictSome(); });
    }
  });
}

int64_t Table::BindOptimizer(const Rule& rule) {
  return Guard::Run(this, [&] {
    const bool same = has_optimizer_ && rule.kind == context_.rule.kind &&
                      rule.StateWidth(config_.dim) == context_.layout.state_width;
    const RowLayout layout{config_.dim, rule.StateWidth(config_.dim)};
    if (!same) {
      for (auto& shard : shards_) shard->TouchAll();  // the state of every row starts anew
    }
    const Rule before = context_.rule;
    context_.rule = rule;
    if (!same) {
      ForgetStep();
      std::vector<std::unique_ptr<SlabStore>> stores;
      try {
        for (auto& shard : shards_) stores.push_back(shard->Relaid(layout));
      } catch (...) {
        context_.rule = before;
        throw;
      }
      for (int s = 0; s < kNumShards; ++s) shards_[s]->Adopt(stores[s].get());
      context_.layout = layout;
      ++relayouts_;
    }
    has_optimizer_ = true;
    return ++binding_;
  });
}

// ---------------------------------------------------------------- rows by key

void Table::Get(const IdView& ids, const IdFilter& filter, bool insert, float* out) {
  Guard::Run(this, [&] {
    auto batch = NewBatch(ids, filter);
    if (insert && trainable_) {
      Resolve(batch.get(), &Shard::FindOrInsert, out);
    } else {
      Resolve(batch.get(), &Shard::FindOnly, out);
    }
    Recycle(std::move(batch));
  });
}

void Table::Put(const IdView& ids, const float* values, size_t value_rows) {
  Guard::Run(this, [&] {
    if (value_rows != ids.size) {
      throw std::invalid_argument(Where("keys and values must have the same length, got " +
                                        std::to_string(ids.size) + " keys and " +
                                        std::to_string(value_rows) + " values"));
    }
    auto batch = NewBatch(ids, {});
    const size_t dim = config_.dim;
    Resolve(batch.get(), &Shard::FindOrPut, nullptr);
    ForShards(*batch, [&](int s) {
      // In order of positions: of a key put twice, the last value stays.
      const size_t first = batch->begin[s];
      for (size_t i = first; i < batch->begin[s + 1]; ++i) {
        char* row = batch->row[first + batch->inverse[i]];
        std::memcpy(Value(row), values + batch->pos[i] * dim, dim * sizeof(float));
      }
    });
    Recycle(std::move(batch));
  });
}

size_t Table::Erase(const IdView& ids) {
  return Guard::Run(this, [&] {
    if (context_.identity()) {
      throw std::invalid_argument(
          Where("is static: its keys are the vocabulary and cannot be erased"));
    }
    auto batch = NewBatch(ids, {});
    RequireHeadroom(HeadroomForKeys(batch->n));
    size_t erased[kNumShards] = {};
    ForShards(*batch, [&](int s) {
      for (size_t i = batch->begin[s]; i < batch->begin[s + 1]; ++i) {
        erased[s] += shards_[s]->Erase(batch->key[i]);
      }
    });
    Recycle(std::move(batch));
    size_t total = 0;
    for (const size_t n : erased) total += n;
    return total;
  });
}

void Table::Contains(const IdView& ids, bool* out) {
  Guard::Run(this, [&] {
    for (size_t i = 0; i < ids.size; ++i) {
      const int64_t key = ids[i];
      if (context_.identity()) {
        out[i] = key >= 0 && key < config_.vocabulary;
      } else {
        out[i] = shards_[ShardOf(key, HashKey(key), false)]->Find(key) != nullptr;
      }
    }
  });
}

size_t Table::Size() {
  return Guard::Run(this, [&] {
    ForAllShards([&](int s) { shards_[s]->EvictAll(); });
    size_t total = 0;
    for (const auto& shard : shards_) total += shard->size();
    return total;
  });
}

std::vector<int64_t> Table::Keys() {
  return Guard::Run(this, [&] {
    std::vector<int64_t> keys;
    for (const auto& shard : shards_) {
      shard->EvictAll();
      for (const char* row : shard->Rows()) keys.push_back(Meta(row)->key);
    }
    return keys;
  });
}

// ---------------------------------------------------------------- whole table

ExportedRows Table::Pack(const std::vector<std::pair<int64_t, const char*>>& rows,
                         bool with_state) const {
  ExportedRows out;
  out.n = rows.size();
  out.dim = config_.dim;
  out.state_width = with_state ? context_.layout.state_width : 0;
  const size_t dim = out.dim;
  const size_t width = out.state_width;
  out.keys.reset(new int64_t[out.n]);
  out.values.reset(new float[out.n * dim]);
  out.states.reset(new float[out.n * width]);
  out.counts.reset(new uint32_t[out.n]);
  out.last_steps.reset(new uint32_t[out.n]);
  out.last_times.reset(new uint32_t[out.n]);
  out.present.reset(new bool[out.n]);
  constexpr size_t kBlock = 4096;
  ThreadPool::Global().ParallelFor(
      static_cast<int64_t>((out.n + kBlock - 1) / kBlock), [&](int64_t block) {
        const size_t last = std::min(out.n, (static_cast<size_t>(block) + 1) * kBlock);
        for (size_t i = block * kBlock; i < last; ++i) {
          const char* row = rows[i].second;
          out.keys[i] = rows[i].first;
          out.present[i] = row != nullptr;
          out.counts[i] = row != nullptr ? Meta(row)->count : 0;
          out.last_steps[i] = row != nullptr ? Meta(row)->last_step : 0;
          out.last_times[i] = row != nullptr ? Meta(row)->last_time : 0;
          float* value = out.values.get() + i * dim;
          float* state = out.states.get() + i * width;
          if (row == nullptr) {
            std::memset(value, 0, dim * sizeof(float));
            std::memset(state, 0, width * sizeof(float));
          } else {
            std::memcpy(value, Value(row), dim * sizeof(float));
            std::memcpy(state, Value(row) + dim, width * sizeof(float));
          }
        }
      });
  return out;
}

ExportedRows Table::Export(bool with_state) {
  return Guard::Run(this, [&] {
    std::vector<std::pair<int64_t, const char*>> rows;
    for (const auto& shard : shards_) {
      shard->EvictAll();
      for (const char* row : shard->Rows()) rows.emplace_back(Meta(row)->key, row);
    }
    return Pack(rows, with_state);
  });
}

void Table::CheckKeys(const IdView& keys, const char* argument) const {
  for (size_t i = 0; context_.identity() && i < keys.size; ++i) {
    if (keys[i] >= 0 && keys[i] < config_.vocabulary) continue;
    throw std::invalid_argument(Where(std::string(argument) + "[" + std::to_string(i) + "] is " +
                                      std::to_string(keys[i]) + ", outside the vocabulary [0, " +
                                      std::to_string(config_.vocabulary) + ")"));
  }
}

ExportedRows Table::ExportKeys(const IdView& keys, bool with_state) {
  return Guard::Run(this, [&] {
    CheckKeys(keys, "keys");
    std::vector<std::pair<int64_t, const char*>> rows;
    rows.reserve(keys.size);
    for (size_t i = 0; i < keys.size; ++i) {
      const int64_t key = keys[i];
      rows.emplace_back(key, shards_[ShardOf(key, HashKey(key), context_.identity())]->Find(key));
    }
    return Pack(rows, with_state);
  });
}

uint64_t Table::Mark() {
  return Guard::Run(this, [&] {
    ForAllShards([&](int s) { shards_[s]->BeginEpoch(epoch_ + 1, 0); });
    ++epoch_;
    if (oldest_mark_ == 0) oldest_mark_ = epoch_;
    return epoch_;
  });
}

ExportedRows Table::ExportSince(uint64_t mark, bool with_state) {
  return Guard::Run(this, [&] {
    if (oldest_mark_ == 0 || mark < oldest_mark_ || mark > epoch_) {
      throw std::invalid_argument(
          Where("mark " + std::to_string(mark) + " is not one of this table's, or was released"));
    }
    std::vector<std::pair<int64_t, const char*>> rows;
    std::vector<int64_t> keys;
    for (const auto& shard : shards_) {
      shard->EvictAll();
      keys.clear();
      shard->Changed(mark, &keys);
      for (const int64_t key : keys) rows.emplace_back(key, shard->Find(key));
    }
    return Pack(rows, with_state);
  });
}

void Table::ReleaseBefore(uint64_t mark) {
  Guard::Run(this, [&] {
    if (mark == 0) {
      ForAllShards([&](int s) { shards_[s]->StopRecording(); });
      oldest_mark_ = 0;
      return;
    }
    if (oldest_mark_ == 0) return;
    oldest_mark_ = std::max(oldest_mark_, std::min(mark, epoch_));
    for (const auto& shard : shards_) shard->Forget(oldest_mark_);
  });
}

void Table::Import(size_t n, const RowArrays& rows, int32_t state_width) {
  Guard::Run(this, [&] {
    if (rows.states != nullptr && state_width != context_.layout.state_width) {
      throw std::invalid_argument(Where("states has " + std::to_string(state_width) +
                                        " floats a row, the table's optimizer has " +
                                        std::to_string(context_.layout.state_width)));
    }
    const IdView ids{rows.keys, n, true};
    CheckKeys(ids, "keys");
    auto batch = NewBatch(ids, {});
    for (int s = 0; s < kNumShards; ++s) shards_[s]->Reserve(batch->begin[s + 1] - batch->begin[s]);
    RequireHeadroom(HeadroomForKeys(n));
    const size_t dim = config_.dim;
    ForShards(*batch, [&](int s) {
      for (size_t i = batch->begin[s]; i < batch->begin[s + 1]; ++i) {
        const size_t p = batch->pos[i];
        RowArrays one;
        one.values = rows.values != nullptr ? rows.values + p * dim : nullptr;
        one.states = rows.states != nullptr ? rows.states + p * state_width : nullptr;
        one.counts = rows.counts != nullptr ? rows.counts + p : nullptr;
        one.last_steps = rows.last_steps != nullptr ? rows.last_steps + p : nullptr;
        one.last_times = rows.last_times != nullptr ? rows.last_times + p : nullptr;
        shards_[s]->Import(batch->key[i], one);
      }
    });
    Recycle(std::move(batch));
  });
}

void Table::Clear() {
  Guard::Run(this, [&] {
    ForgetStep();
    for (const auto& shard : shards_) shard->Clear();
    ++relayouts_;
  });
}

void Table::EvictAll() {
  Guard::Run(this, [&] { ForAllShards([&](int s) { shards_[s]->EvictAll(); }); });
}

void Table::SetTrainable(bool trainable) {
  Guard::Run(this, [&] { trainable_ = trainable; });
}

void Table::SetAdmissionThreshold(int64_t threshold) {
  Guard::Run(this, [&] {
    CheckThreshold(threshold);
    context_.admission.threshold = threshold;
  });
}

void Table::SetMaxIdleSteps(int64_t steps) {
  Guard::Run(this, [&] {
    CheckMaxIdleSteps(steps);
    context_.eviction.max_idle_steps = steps;
  });
}

void Table::SetClock(int64_t step, uint32_t time) {
  Guard::Run(this, [&] {
    if (step < 0 || step > std::numeric_limits<uint32_t>::max()) {
      throw std::invalid_argument(Where("step must be in [0, 2^32), got " + std::to_string(step)));
    }
    context_.step = step;
    context_.time = time;
  });
}

int64_t Table::step() {
  return Guard::Run(this, [&] { return context_.step; });
}

std::vector<std::pair<std::string, double>> Table::Stats() {
  return Guard::Run(this, [&] {
    size_t rows = 0, candidates = 0, row_bytes = 0, index_bytes = 0, log_bytes = 0, slots = 0;
    uint64_t inserted = 0, evicted = 0, erased = 0;
    for (const auto& shard : shards_) {
      rows += shard->size();
      candidates += shard->candidates();
      row_bytes += shard->row_bytes();
      index_bytes += shard->index_bytes();
      log_bytes += shard->log_bytes();
      slots += shard->index_slots();
      inserted += shard->stats().inserted;
      evicted += shard->stats().evicted;
      erased += shard->stats().erased;
    }
    size_t buffer_bytes = gradients_.bytes();
    for (const auto& batch : spare_) buffer_bytes += batch->bytes();
    for (const auto& [ticket, batch] : outstanding_) buffer_bytes += batch->bytes();
    return std::vector<std::pair<std::string, double>>{
        {"rows", static_cast<double>(rows)},
        {"candidates", static_cast<double>(candidates)},
        {"row_bytes", static_cast<double>(row_bytes)},
        {"metadata_bytes", static_cast<double>(rows * sizeof(RowMeta))},
        {"index_bytes", static_cast<double>(index_bytes)},
        {"change_log_bytes", static_cast<double>(log_bytes)},
        {"buffer_bytes", static_cast<double>(buffer_bytes)},
        {"load_factor", slots == 0 ? 0.0 : static_cast<double>(rows) / static_cast<double>(slots)},
        {"inserted", static_cast<double>(inserted)},
        {"evicted", static_cast<double>(evicted)},
        {"erased", static_cast<double>(erased)},
        {"step", static_cast<double>(context_.step)},
        {"state_width", static_cast<double>(context_.layout.state_width)},
    };
  });
}

}  // namespace msrec
