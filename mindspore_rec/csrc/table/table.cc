// SPDX-License-Identifier: Apache-2.0
#include "table/table.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <new>

#include "table/for_shards.h"
#include "table/table_guard.h"
#include "util/headroom.h"

namespace msrec {
namespace {

// Lookups without a gradient that are remembered: a forward pass alone leaves its ticket behind.
constexpr size_t kMaxOutstanding = 512;
constexpr size_t kMaxSpare = 4;
constexpr int32_t kMaxDim = 8192;
constexpr uint32_t kDroppedRow = std::numeric_limits<uint32_t>::max();

}  // namespace

Table::Table(const TableConfig& config) : config_(config) {
  if (config.dim < 1 || config.dim > kMaxDim) {
    throw std::invalid_argument(
        Where("dim must be in [1, 8192], got " + std::to_string(config.dim)));
  }
  if (config.vocabulary < 0 || config.vocabulary > (int64_t{1} << 35)) {
    throw std::invalid_argument(
        Where("vocabulary must be in [0, 2^35], got " + std::to_string(config.vocabulary)));
  }
  CheckAdmission(config.admission);
  CheckEviction(config.eviction);
  config_.initializer.seed = Mix64(config.seed ^ HashBytes(config.name.data(), config.name.size()));
  context_.layout = {config.dim, StateWidth(context_.rule, config.eviction, config.dim)};
  context_.initializer = config_.initializer;
  context_.admission = config.admission;
  context_.eviction = config.eviction;
  context_.vocabulary = config.vocabulary;
  context_.kernels = &ActiveKernels();
  unknown_row_ = UnknownRow(config.unknown_value, "unknown_value", {0.0f});
  serving_unknown_row_ =
      UnknownRow(config.serving_unknown_value, "serving_unknown_value", unknown_row_);
  try {
    for (int s = 0; s < kNumShards; ++s) shards_.push_back(std::make_unique<Shard>(&context_, s));
    spare_.reserve(kMaxSpare);  // giving a batch back cannot fail
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(Where("out of memory while creating it"));
  }
}

Table::~Table() { Close(); }

void Table::Close() {
  if (!mutex_.own_process()) {
    // Nothing of it can be ended here: its threads, files and connections are the parent's.
    static_cast<void>(below_.release());
    return;
  }
  TableMutex::Hold hold(&mutex_);
  if (closed_) {
    closing_.wait(*hold.lock(), [&] { return emptied_; });
    return;
  }
  closed_ = true;
  StopPrefetching(hold.lock());
  try {
    DrainStale();
  } catch (const std::exception&) {
    // A tier that is away: what is left in it is of a layout, or of an attempt at one, that no
    // table reads.
  }
  ForgetStep();
  spare_.clear();
  shards_.clear();
  below_.reset();
  emptied_ = true;
  closing_.notify_all();
}

uint64_t Table::Structure() const {
  uint64_t version = relayouts_;
  for (const auto& shard : shards_) version += shard->stats().removed();
  return version;
}

void Table::RequireOptimizer() const {
  if (has_optimizer_) return;
  throw NoOptimizer(Where(
      "is looked up in training mode but no optimizer covers it, so it would never learn; pass "
      "net.trainable_params() to an optimizer of mindspore_rec.optim, or freeze the table with "
      "requires_grad=False, or call set_train(False) on the network"));
}

void Table::RefuseWithoutTime() const {
  throw std::invalid_argument(
      Where("evicts by age in seconds (max_idle_seconds=" +
            std::to_string(context_.eviction.max_idle_seconds) +
            ") but has no event time; name the timestamp column of the batches, or call "
            "set_event_time(seconds) before the step, or evict by max_idle_steps"));
}

void Table::RequireTrainable() const {
  RequireOptimizer();
  if (context_.eviction.max_idle_seconds >= 0 && context_.time == 0) RefuseWithoutTime();
}

// ---------------------------------------------------------------- batches

void Table::CheckIds(const IdView& ids, const IdFilter& filter) const {
  if (!context_.is_static() || config_.outside_zeros) return;
  for (size_t i = 0; i < ids.size; ++i) {
    const int64_t id = ids[i];
    if ((id >= 0 && id < config_.vocabulary) || (filter.has_padding && id == filter.padding_key)) {
      continue;
    }
    throw std::invalid_argument(Where("id " + std::to_string(id) + " at position " +
                                      std::to_string(i) + " is outside the vocabulary [0, " +
                                      std::to_string(config_.vocabulary) +
                                      "); for ids without a vocabulary, such as hashes, there is "
                                      "HashEmbeddingLookup"));
  }
}

void Table::CheckLookup(const IdView& ids, const IdFilter& filter, bool train) {
  Guard::Run(this, [&] {
    if (train && trainable_) {
      RequireTrainable();
      if (device_ != nullptr && !device_->shared()) RefuseUnshared("a lookup of this kind");
    }
    CheckIds(ids, filter);
  });
}

std::unique_ptr<Batch> Table::NewBatch(const IdView& ids, const IdFilter& filter) {
  if (ids.size * ids.stride >= std::numeric_limits<uint32_t>::max()) {
    throw std::invalid_argument(Where("a batch must have fewer than 2^32 - 1 ids, got " +
                                      std::to_string(ids.size * ids.stride)));
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
  full.identity = context_.identity();
  batch->pooled = false;
  batch->probed = false;
  batch->grad_rows = ids.size;
  batch->Partition(ids, full);
  if (batch->begin[kNumShards] < ids.size) {
    try {
      CheckIds(ids, filter);
    } catch (...) {
      Recycle(std::move(batch));
      throw;
    }
  }
  return batch;
}

void Table::Recycle(std::unique_ptr<Batch> batch) {
  if (spare_.size() < kMaxSpare) spare_.push_back(std::move(batch));
}

// Made before a lookup changes anything, so that it can be kept after.
Table::Outstanding::node_type Table::NewPlace() {
  Outstanding one;
  one.emplace(0, nullptr);
  return one.extract(one.begin());
}

int64_t Table::Keep(std::unique_ptr<Batch> batch, Outstanding::node_type place) noexcept {
  while (outstanding_.size() >= kMaxOutstanding) {
    Recycle(std::move(outstanding_.begin()->second));
    outstanding_.erase(outstanding_.begin());
  }
  const int64_t ticket = next_ticket_++;
  batch->ticket = ticket;
  batch->structure = Structure();
  place.key() = ticket;
  place.mapped() = std::move(batch);
  outstanding_.insert(std::move(place));
  return ticket;
}

// unique | fetch rows | expand, shard by shard while its lines are in cache. A null `out` skips the
// last.
void Table::Resolve(Batch* batch, void (Shard::*find)(Batch*), const float* unknown, float* out) {
  const int dim = config_.dim;
  if (!batch->on_device) RequireFresh();
  if (out != nullptr && batch->begin[kNumShards] < batch->n) {
    for (size_t i = 0; i < (batch->stride == 1 ? 1 : batch->n); ++i) {
      const size_t rows = batch->stride == 1 ? batch->n : 1;
      std::memset(out + i * batch->stride * dim, 0, rows * dim * sizeof(float));
    }
  }
  bool unique_first = context_.tiered || batch->made_unique;
  if (context_.tiered) {
    BringUp(batch, find == &Shard::FindOnly ? Purpose::kRead : Purpose::kChange);
  } else if (find != &Shard::FindOnly) {
    // Before anything changes: afterwards no row can fail to be allocated.
    for (int s = 0; s < kNumShards; ++s) {
      const size_t positions = batch->begin[s + 1] - batch->begin[s];
      if (!shards_[s]->HasRoom(positions)) unique_first = true;
      shards_[s]->ReserveNotes(positions);
    }
  }
  if (unique_first && !context_.tiered) {
    // Distinct keys may be far fewer than positions: memory is mapped for those only.
    if (!batch->made_unique) ForShards(*batch, [&](int s) { batch->MakeUnique(s); });
    for (int s = 0; s < kNumShards; ++s) {
      if (batch->begin[s + 1] != batch->begin[s]) shards_[s]->Reserve(batch->unique[s]);
    }
  }
  if (find != &Shard::FindOnly) RequireHeadroom(HeadroomForKeys(batch->n));
  ForShards(*batch, [&](int s) {
    if (!unique_first) batch->MakeUnique(s);
    (shards_[s].get()->*find)(batch);
    const size_t first = batch->begin[s];
    for (size_t i = 0; device_ != nullptr && !batch->on_device && i < batch->unique[s]; ++i) {
      if (batch->row[first + i] != nullptr) device_->Freshen(batch->key[first + i]);
    }
    if (out == nullptr) return;
    context_.kernels->gather(batch->row.data() + first, batch->inverse.data() + first,
                             batch->pos.data() + first, batch->begin[s + 1] - first, unknown, dim,
                             out);
  });
}

int64_t Table::Lookup(const IdView& ids, const IdFilter& filter, const BagView* bags, bool train,
                      float* out) {
  return Guard::Run(this, [&] {
    const bool trained = train && trainable_;
    if (trained) RequireTrainable();
    if (trained && device_ != nullptr && !device_->shared())
      RefuseUnshared("a lookup of this kind");
    if (bags != nullptr) CheckBags(ids, *bags);
    auto batch = NewBatch(ids, filter);
    const bool places = trained && device_ != nullptr;
    std::vector<SlotSwap> swaps;
    if (places) RequireSlots(batch.get(), trained, &swaps);
    auto kept = NewPlace();
    if (below_ != nullptr) below_->lookups.reserve(below_->lookups.size() + 1);
    if (bags != nullptr) ReservePool(batch.get(), *bags);
    const auto find = trained ? &Shard::FindOrInsert : &Shard::FindOnly;
    const float* unknown = (train ? unknown_row_ : serving_unknown_row_).data();
    if (bags == nullptr) {
      Resolve(batch.get(), find, unknown, out);
    } else {
      Resolve(batch.get(), find, nullptr, nullptr);
      Pool(batch.get(), ids, *bags, unknown, out);
    }
    if (places) PlaceOnDevice(*batch, &swaps);
    if (train && below_ != nullptr) below_->lookups.emplace_back(HashIds(ids), ids.size);
    if (trained) return Keep(std::move(batch), std::move(kept));
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

// All the memory that Pool needs, before the lookup changes anything.
void Table::ReservePool(Batch* batch, const BagView& bags) {
  batch->pooled = true;
  batch->grad_rows = bags.offsets.size;
  batch->bag.Reset(batch->n);
  batch->weight.Reset(batch->n);
  row_of_pos_.Reset(batch->n);
}

void Table::Pool(Batch* batch, const IdView& ids, const BagView& bags, const float* unknown,
                 float* out) {
  const size_t num_bags = bags.offsets.size;
  const int dim = config_.dim;
  uint32_t* row_of_pos = row_of_pos_.data();
  if (batch->begin[kNumShards] < batch->n) {
    std::fill_n(row_of_pos, batch->n, kDroppedRow);
  }
  ForShards(*batch, [&](int s) {
    const size_t first = batch->begin[s];
    for (size_t i = first; i < batch->begin[s + 1]; ++i) {
      row_of_pos[batch->pos[i]] = static_cast<uint32_t>(first + batch->inverse[i]);
    }
  });
  constexpr size_t kBlock = 256;
  const auto pool_block = [&](int64_t block) {
    const size_t last_bag = std::min(num_bags, (static_cast<size_t>(block) + 1) * kBlock);
    for (size_t b = block * kBlock; b < last_bag; ++b) {
      const auto first = static_cast<size_t>(bags.offsets[b]);
      const size_t last = b + 1 < num_bags ? static_cast<size_t>(bags.offsets[b + 1]) : ids.size;
      // Gathers the rows and weights of the bag in place, at the front of its own positions.
      uint32_t* rows = row_of_pos + first;
      float* weights = batch->weight.data() + first;
      size_t pooled = 0;
      double total = 0.0;
      for (size_t i = first; i < last; ++i) {
        if (row_of_pos[i] == kDroppedRow) continue;
        const float w = bags.weights != nullptr ? bags.weights[i] : 1.0f;
        total += bags.combiner == Combiner::kSqrtN ? static_cast<double>(w) * w : w;
        rows[pooled] = row_of_pos[i];
        weights[pooled] = w;
        ++pooled;
      }
      float scale = 1.0f;
      if (bags.combiner == Combiner::kMean)
        scale = total != 0.0 ? static_cast<float>(1.0 / total) : 0.0f;
      if (bags.combiner == Combiner::kSqrtN) {
        scale = total > 0.0 ? static_cast<float>(1.0 / std::sqrt(total)) : 0.0f;
      }
      context_.kernels->pool(batch->row.data(), rows, weights, pooled, unknown, scale, dim,
                             out + b * dim);
      for (size_t i = first; i < last; ++i) {
        batch->bag[i] = static_cast<uint32_t>(b);
        batch->weight[i] = (bags.weights != nullptr ? bags.weights[i] : 1.0f) * scale;
      }
    }
  };
  ThreadPool::Global().ParallelFor(static_cast<int64_t>((num_bags + kBlock - 1) / kBlock),
                                   std::cref(pool_block));
}

// ---------------------------------------------------------------- gradients and the step

void Table::Accumulate(int64_t ticket, const float* grad, size_t grad_rows) {
  Guard::Run(this, [&] {
    if (ticket == kFrozenTicket) return;
    // Merges first what an earlier call could not, whichever lookups are outstanding.
    MergeDeferred(false);
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
      const size_t floats =
          grad_rows == 0 ? 0 : ((grad_rows - 1) * it->second->stride + 1) * config_.dim;
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
    try {
      MergeDeferred(false);
    } catch (const std::bad_alloc&) {
      // This gradient is in; the others still wait.
    }
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
  ForgetDeviceStep();
  if (below_ == nullptr) return;
  context_.pins.step = below_->NextSerial();
  if (!below_->lookups.empty()) below_->last_lookups.swap(below_->lookups);
  below_->lookups.clear();
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

StepConstants Table::Constants(const StepInput& input) const {
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
  StepConstants c{context_.rule, input, 0.0f, context_.rule.epsilon, 2.0f * context_.rule.l2};
  const double t = static_cast<double>(std::max<int64_t>(input.step, 1));
  const double correction2 = std::sqrt(1.0 - std::pow(static_cast<double>(c.rule.beta2), t));
  const double correction1 = 1.0 - std::pow(static_cast<double>(c.rule.beta1), t);
  c.adam_lr = static_cast<float>(input.learning_rate * correction2 / correction1);
  // AdamW as published corrects the second moment before epsilon is added; MindSpore's Adam
  // after.
  if (c.rule.kind == RuleKind::kAdamW)
    c.adam_eps = static_cast<float>(c.rule.epsilon * correction2);
  return c;
}

void Table::Step(const StepInput& input) {
  Guard::Run(this, [&] {
    RequireOptimizer();
    if (device_ != nullptr && !device_->shared()) RefuseUnshared("a step on the host");
    const StepConstants c = Constants(input);
    RequireNonePrepared();
    MergeDeferred(true);
    // The update cannot fail any more.
    ReserveStep();
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
        for (size_t i = 0; record && i < part.n; ++i) {
          if (part.row[i] != nullptr) shard.Touch(part.row[i]);
        }
        if (device_ != nullptr) StepOnDevice(c, s);
        context_.kernels->step(c, config_.dim, part.row.data(), part.sum.data(), part.n);
      });
    }
    FinishStep();
  });
}

// Makes room for what a step notes about the rows it updates.
void Table::ReserveStep() {
  size_t rows = 0;
  for (int s = 0; s < kNumShards; ++s) {
    shards_[s]->ReserveChanges(gradients_.part(s).n);
    rows += gradients_.part(s).n;
  }
  if (device_ == nullptr) return;
  value_of_row_.Reset(rows);
  state_of_row_.Reset(rows);
}

void Table::ReserveChanges(const std::vector<int64_t>& keys, bool all) {
  if (oldest_mark_ == 0) return;
  size_t more[kNumShards] = {};
  for (const int64_t key : keys) ++more[ShardOf(key, HashKey(key), context_.identity())];
  if (all && context_.is_static()) {
    for (int64_t key = 0; key < config_.vocabulary; ++key) {
      ++more[ShardOf(key, HashKey(key), context_.identity())];
    }
  }
  for (int s = 0; s < kNumShards; ++s) {
    shards_[s]->ReserveChanges(more[s] + (all ? shards_[s]->size() : 0));
  }
}

void Table::FinishStep() {
  ForgetStep();
  ++context_.step;
  FollowClock();
  try {
    EvictSome();
  } catch (const std::exception&) {
    // The update is made, and a step that threw now would be taken twice. Each row is evicted, or
    // is not; those that are due are invisible already, those over the capacity are counted anew by
    // the next step.
    if (below_ == nullptr) return;
    ++below_->failed_evictions;
    below_->sweep.reset();
  }
}

int64_t Table::BindOptimizer(const Rule& rule) {
  return Guard::Run(this, [&] {
    RequireFresh();
    if (device_ != nullptr) device_->FreshenAll();
    const bool same =
        has_optimizer_ && rule.kind == context_.rule.kind &&
        StateWidth(rule, context_.eviction, config_.dim) == context_.layout.state_width;
    if (same) {
      context_.rule = rule;
      return ++binding_;
    }
    const RowLayout layout{config_.dim, StateWidth(rule, context_.eviction, config_.dim)};
    // All rows are laid out anew beside those there are. Whatever fails, these stay.
    std::vector<std::unique_ptr<SlabStore>> stores;
    Relaid below;
    const Rule before = context_.rule;
    context_.rule = rule;  // what fresh state is made by
    try {
      for (auto& shard : shards_) stores.push_back(shard->Relaid(layout));
      below = RelayBelow(layout);
      // The state of every row starts anew.
      ReserveChanges(below.keys, true);
    } catch (...) {
      context_.rule = before;
      DropStale(std::move(below.queue));
      throw;
    }
    DropStale(SwitchLayout(layout, &stores, std::move(below)));
    return binding_;
  });
}

// From here to the end of the switch nothing can fail.
std::shared_ptr<WriteBehind> Table::SwitchLayout(const RowLayout& layout,
                                                 std::vector<std::unique_ptr<SlabStore>>* stores,
                                                 Relaid below) noexcept {
  ForgetStep();
  auto old = AdoptBelow(std::move(below));
  for (int s = 0; s < kNumShards; ++s) shards_[s]->Adopt((*stores)[s].get());
  context_.layout = layout;
  for (const auto& shard : shards_) shard->TouchAll();
  ++relayouts_;
  if (device_ != nullptr) {
    device_->Clear();
    device_->SetStates(nullptr, context_.rule.StateWidth(config_.dim));
  }
  has_optimizer_ = true;
  ++binding_;
  return old;
}

}  // namespace msrec
