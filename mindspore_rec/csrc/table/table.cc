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

constexpr uint32_t kDroppedRow = std::numeric_limits<uint32_t>::max();

}  // namespace

Table::Table(const TableConfig& config) : core_(config) {}

Table::~Table() { Close(); }

void Table::Close() {
  if (!core_.mutex.own_process()) {
    // Nothing of it can be ended here: its threads, files and connections are the parent's.
    static_cast<void>(below_.release());
    return;
  }
  TableMutex::Hold hold(&core_.mutex);
  if (core_.closed) {
    closing_.wait(*hold.lock(), [&] { return emptied_; });
    return;
  }
  core_.closed = true;
  StopPrefetching(hold.lock());
  try {
    DrainStale();
  } catch (const std::exception&) {
    // A tier that is away: what is left in it is of a layout, or of an attempt at one, that no
    // table reads.
  }
  ForgetStep();
  core_.lookups.Free();
  core_.shards.clear();
  below_.reset();
  emptied_ = true;
  closing_.notify_all();
}

// ---------------------------------------------------------------- batches

void Table::CheckLookup(const IdView& ids, const IdFilter& filter, bool train) {
  Guard::Run(this, [&] {
    if (train && core_.trainable) {
      core_.RequireTrainable();
      if (core_.device != nullptr && !core_.device->shared())
        core_.RefuseUnshared("a lookup of this kind");
    }
    core_.CheckIds(ids, filter);
  });
}

// unique | fetch rows | expand, shard by shard while its lines are in cache. A null `out` skips the
// last.
void Table::Resolve(Batch* batch, void (Shard::*find)(Batch*), const float* unknown, float* out) {
  const int dim = core_.config.dim;
  if (!batch->on_device) core_.RequireWrittenBack();
  if (out != nullptr && batch->begin[kNumShards] < batch->n) {
    for (size_t i = 0; i < (batch->stride == 1 ? 1 : batch->n); ++i) {
      const size_t rows = batch->stride == 1 ? batch->n : 1;
      std::memset(out + i * batch->stride * dim, 0, rows * dim * sizeof(float));
    }
  }
  bool unique_first = core_.context.tiered || batch->made_unique;
  if (core_.context.tiered) {
    BringUp(batch, find == &Shard::FindOnly ? Purpose::kRead : Purpose::kChange);
  } else if (find != &Shard::FindOnly) {
    // Before anything changes: afterwards no row can fail to be allocated.
    for (int s = 0; s < kNumShards; ++s) {
      const size_t positions = batch->begin[s + 1] - batch->begin[s];
      if (!core_.shards[s]->HasRoom(positions)) unique_first = true;
      core_.shards[s]->ReserveNotes(positions);
    }
  }
  if (unique_first && !core_.context.tiered) {
    // Distinct keys may be far fewer than positions: memory is mapped for those only.
    if (!batch->made_unique) ForShards(*batch, [&](int s) { batch->MakeUnique(s); });
    for (int s = 0; s < kNumShards; ++s) {
      if (batch->begin[s + 1] != batch->begin[s]) core_.shards[s]->Reserve(batch->unique[s]);
    }
  }
  if (find != &Shard::FindOnly) RequireHeadroom(HeadroomForKeys(batch->n));
  ForShards(*batch, [&](int s) {
    if (!unique_first) batch->MakeUnique(s);
    (core_.shards[s].get()->*find)(batch);
    const size_t first = batch->begin[s];
    for (size_t i = 0; core_.device != nullptr && !batch->on_device && i < batch->unique[s]; ++i) {
      if (batch->row[first + i] != nullptr) core_.device->WriteBack(batch->key[first + i]);
    }
    if (out == nullptr) return;
    core_.context.kernels->gather(batch->row.data() + first, batch->inverse.data() + first,
                                  batch->pos.data() + first, batch->begin[s + 1] - first, unknown,
                                  dim, out);
  });
}

int64_t Table::Lookup(const IdView& ids, const IdFilter& filter, const BagView* bags, bool train,
                      float* out) {
  return Guard::Run(this, [&] {
    const bool trained = train && core_.trainable;
    if (trained) core_.RequireTrainable();
    if (trained && core_.device != nullptr && !core_.device->shared())
      core_.RefuseUnshared("a lookup of this kind");
    if (bags != nullptr) CheckBags(ids, *bags);
    auto batch = core_.lookups.NewBatch(ids, filter);
    const bool places = trained && core_.device != nullptr;
    std::vector<SlotSwap> swaps;
    if (places) device_->RequireSlots(batch.get(), trained, &swaps);
    auto kept = core_.lookups.NewPlace();
    core_.lookups.ReserveNote();
    if (bags != nullptr) ReservePool(batch.get(), *bags);
    const auto find = trained ? &Shard::FindOrInsert : &Shard::FindOnly;
    const float* unknown = (train ? core_.unknown_row : core_.serving_unknown_row).data();
    if (bags == nullptr) {
      Resolve(batch.get(), find, unknown, out);
    } else {
      Resolve(batch.get(), find, nullptr, nullptr);
      Pool(batch.get(), ids, *bags, unknown, out);
    }
    if (places) device_->Place(*batch, &swaps);
    if (train) core_.lookups.Note(ids);
    if (trained) return core_.lookups.Keep(std::move(batch), std::move(kept));
    core_.lookups.Recycle(std::move(batch));
    return StepLookups::kFrozenTicket;
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
          core_.Where("offsets must start at 0 and rise to at most the number of ids, " +
                      std::to_string(ids.size) + "; offsets[" + std::to_string(b) + "] is " +
                      std::to_string(offset)));
    }
    before = offset;
  }
  if (bags.offsets.size == 0 && ids.size > 0) {
    throw std::invalid_argument(core_.Where("offsets is empty but there are ids"));
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
  const int dim = core_.config.dim;
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
      core_.context.kernels->pool(batch->row.data(), rows, weights, pooled, unknown, scale, dim,
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
  Guard::Run(this, [&] { core_.lookups.Accumulate(ticket, grad, grad_rows); });
}

void Table::ForgetStep() {
  core_.lookups.Forget();
  if (device_ != nullptr) device_->ForgetStep();
  if (below_ != nullptr) core_.context.pins.step = below_->NextSerial();
}

void Table::DiscardGradients() {
  Guard::Run(this, [&] { ForgetStep(); });
}

double Table::GradientSquaredNorm() {
  return Guard::Run(this, [&] { return core_.lookups.SquaredNorm(); });
}

StepConstants Table::Constants(const StepInput& input) const {
  const auto require = [&](bool fine, const char* argument, const char* range, float got) {
    if (!fine) {
      throw std::invalid_argument(core_.Where(std::string(argument) + " must be " + range +
                                              ", got " + std::to_string(got)));
    }
  };
  require(std::isfinite(input.learning_rate) && input.learning_rate >= 0.0f, "learning_rate",
          "a finite number >= 0", input.learning_rate);
  require(std::isfinite(input.weight_decay) && input.weight_decay >= 0.0f, "weight_decay",
          "a finite number >= 0", input.weight_decay);
  require(core_.context.rule.kind != RuleKind::kFtrl || input.learning_rate > 0.0f, "learning_rate",
          "> 0 with ftrl, which divides by it", input.learning_rate);
  if (input.binding != 0 && input.binding != binding_) {
    throw std::runtime_error(core_.Where(
        "another optimizer was created for this table later; this one can no longer step"));
  }
  StepConstants c{core_.context.rule, input, 0.0f, core_.context.rule.epsilon,
                  2.0f * core_.context.rule.l2};
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
    core_.RequireOptimizer();
    if (core_.device != nullptr && !core_.device->shared())
      core_.RefuseUnshared("a step on the host");
    const StepConstants c = Constants(input);
    if (device_ != nullptr) device_->RequireNonePrepared();
    core_.lookups.MergeDeferred(true);
    // The update cannot fail any more.
    ReserveStep();
    if (!core_.lookups.gradients().empty()) {
      const bool stale = core_.lookups.gradients().structure() != core_.Structure();
      const bool record = core_.oldest_mark != 0;
      ForAllShards([&](int s) {
        GradientSum::Part& part = core_.lookups.gradients().part(s);
        Shard& shard = *core_.shards[s];
        if (stale) {
          for (size_t i = 0; i < part.n; ++i) {
            if (part.row[i] != nullptr) part.row[i] = shard.Find(part.key[i]);
          }
        }
        for (size_t i = 0; record && i < part.n; ++i) {
          if (part.row[i] != nullptr) shard.Touch(part.row[i]);
        }
        if (device_ != nullptr) device_->UpdateRows(c, s);
        core_.context.kernels->step(c, core_.config.dim, part.row.data(), part.sum.data(), part.n);
      });
    }
    FinishStep();
  });
}

// Makes room for what a step notes about the rows it updates.
void Table::ReserveStep() {
  size_t rows = 0;
  for (int s = 0; s < kNumShards; ++s) {
    core_.shards[s]->ReserveChanges(core_.lookups.gradients().part(s).n);
    rows += core_.lookups.gradients().part(s).n;
  }
  if (device_ != nullptr) device_->ReserveStep(rows);
}

void Table::FinishStep() {
  ForgetStep();
  ++core_.context.step;
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
    core_.RequireWrittenBack();
    if (core_.device != nullptr) core_.device->WriteBackAll();
    const bool same = core_.has_optimizer && rule.kind == core_.context.rule.kind &&
                      StateWidth(rule, core_.context.eviction, core_.config.dim) ==
                          core_.context.layout.state_width;
    if (same) {
      core_.context.rule = rule;
      return ++binding_;
    }
    const RowLayout layout{core_.config.dim,
                           StateWidth(rule, core_.context.eviction, core_.config.dim)};
    // All rows are laid out anew beside those there are. Whatever fails, these stay.
    std::vector<std::unique_ptr<SlabStore>> stores;
    Relaid below;
    const Rule before = core_.context.rule;
    core_.context.rule = rule;  // what fresh state is made by
    try {
      for (auto& shard : core_.shards) stores.push_back(shard->Relaid(layout));
      below = RelayBelow(layout);
      // The state of every row starts anew.
      core_.ReserveChanges(below.keys, true);
    } catch (...) {
      core_.context.rule = before;
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
  for (int s = 0; s < kNumShards; ++s) core_.shards[s]->Adopt((*stores)[s].get());
  core_.context.layout = layout;
  for (const auto& shard : core_.shards) shard->TouchAll();
  ++core_.relayouts;
  if (core_.device != nullptr) {
    core_.device->Clear();
    core_.device->SetStates(nullptr, core_.context.rule.StateWidth(core_.config.dim));
  }
  core_.has_optimizer = true;
  ++binding_;
  return old;
}

}  // namespace msrec
