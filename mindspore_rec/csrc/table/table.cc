// SPDX-License-Identifier: Apache-2.0
#include "table/table.h"

#include "readers/quantised_rows.h"
#include "rows/for_shards.h"
#include "table/cache/row_cache.h"
#include "table/table_guard.h"

namespace msrec {

Table::Table(const TableConfig& config) : core_(config) {}

Table::~Table() { Close(); }

void Table::Close() {
  if (!core_.mutex.own_process()) {
    // Nothing of it can be ended here: its threads, files and connections are the parent's.
    static_cast<void>(core_.cache.release());
    return;
  }
  TableMutex::Hold hold(&core_.mutex);
  if (core_.closed) {
    closing_.wait(*hold.lock(), [&] { return emptied_; });
    return;
  }
  core_.closed = true;
  if (core_.cache != nullptr) core_.cache->prefetcher.Stop(hold.lock());
  try {
    if (core_.cache != nullptr) core_.cache->tiers.DrainStale();
  } catch (const std::exception&) {
    // A tier that is away: what is left in it is of a layout, or of an attempt at one, that no
    // table reads.
  }
  ForgetStep();
  core_.lookups.Free();
  core_.shards.clear();
  core_.cache.reset();
  core_.quantised.reset();
  emptied_ = true;
  closing_.notify_all();
}

bool Table::trainable() {
  return Guard::Run(this, [&] { return core_.trainable; });
}

void Table::SetTrainable(bool trainable) {
  Guard::Run(this, [&] { core_.trainable = trainable; });
}

// ---------------------------------------------------------------- lookups

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

void Table::CheckNumbers(const RowsOut& out) const {
  if (out.halves == nullptr || core_.config.precision.value == NumberType::kBfloat16) return;
  throw std::invalid_argument(
      core_.Where(std::string("rows are handed over as bfloat16 where values are bfloat16, this "
                              "table's are ") +
                  NameOf(core_.config.precision.value)));
}

int64_t Table::Lookup(const IdView& ids, const IdFilter& filter, const BagView* bags, bool train,
                      const RowsOut& out) {
  return Guard::Run(this, [&] {
    CheckNumbers(out);
    const bool trained = train && core_.trainable;
    if (trained) core_.RequireTrainable();
    if (trained && core_.device != nullptr && !core_.device->shared()) {
      core_.RefuseUnshared("a lookup of this kind");
    }
    if (bags != nullptr) pooling_.Check(ids, *bags);
    if (core_.quantised != nullptr) {
      const auto& unknown_row = train ? core_.unknown_row : core_.serving_unknown_row;
      LookUpQuantised(ids, filter, bags, unknown_row.data(), out);
      return StepLookups::kFrozenTicket;
    }
    auto batch = core_.lookups.NewBatch(ids, filter);
    const bool places = trained && core_.device != nullptr;
    std::vector<SlotSwap> swaps;
    if (places) device_->RequireSlots(batch.get(), trained, &swaps);
    auto kept = core_.lookups.NewPlace();
    core_.lookups.ReserveNote();
    if (bags != nullptr) pooling_.Reserve(batch.get(), *bags);
    const auto purpose = trained ? LookupPurpose::kTrain : LookupPurpose::kEvaluate;
    const float* unknown = (train ? core_.unknown_row : core_.serving_unknown_row).data();
    if (bags == nullptr) {
      lookup_.Run(batch.get(), purpose, unknown, out);
    } else {
      lookup_.Run(batch.get(), purpose, nullptr, nullptr);
      pooling_.Pool(batch.get(), ids, *bags, unknown, out.floats);
    }
    if (places) device_->Place(*batch, &swaps);
    if (train && placement().workers == 1) core_.lookups.Note(ids);
    if (trained) return core_.lookups.Keep(std::move(batch), std::move(kept));
    core_.lookups.Recycle(std::move(batch));
    return StepLookups::kFrozenTicket;
  });
}

int64_t Table::LookupTrain(const IdView& ids, const IdFilter& filter, const RowsOut& out) {
  return Lookup(ids, filter, nullptr, true, out);
}

void Table::LookupEval(const IdView& ids, const IdFilter& filter, const RowsOut& out) {
  Lookup(ids, filter, nullptr, false, out);
}

int64_t Table::PoolTrain(const IdView& ids, const IdFilter& filter, const BagView& bags,
                         float* out) {
  return Lookup(ids, filter, &bags, true, out);
}

void Table::PoolEval(const IdView& ids, const IdFilter& filter, const BagView& bags, float* out) {
  Lookup(ids, filter, &bags, false, out);
}

// ---------------------------------------------------------------- lookups in two parts

void Table::PrepareLookup(const IdView& ids, const IdFilter& filter, bool by_handle,
                          PreparedLookups* prepared) {
  Guard::Run(this, [&] {
    core_.RequireTrainable();
    PreparedLookups::One one{core_.lookups.NewBatch(ids, filter), core_.lookups.NewPlace()};
    if (by_handle) RowHandles::Reserve(one.batch.get());
    prepared->lookups.push_back(std::move(one));
    if (prepared->lookups.size() == 1) prepared->inserted = core_.Inserted();
    lookup_.Prepare(prepared->lookups.back().batch.get(), &prepared->pending);
  });
}

int64_t Table::FinishLookup(PreparedLookups* prepared, float* out, int64_t* handles) {
  return Guard::Run(this, [&] {
    PreparedLookups::One& one = prepared->lookups.at(prepared->finished);
    prepared->moved |= core_.Inserted() != prepared->inserted;
    lookup_.Finish(one.batch.get(), prepared->moved, core_.unknown_row.data(), out);
    ++prepared->finished;
    prepared->inserted = core_.Inserted();
    if (handles == nullptr) return core_.lookups.Keep(std::move(one.batch), std::move(one.place));
    handles_.Give(one.batch.get(), true, handles);
    core_.lookups.Recycle(std::move(one.batch));
    return StepLookups::kFrozenTicket;
  });
}

// ---------------------------------------------------------------- lookups by handle

void Table::LookupWithHandles(const IdView& ids, const IdFilter& filter, float* out,
                              int64_t* handles) {
  Guard::Run(this, [&] {
    RefuseQuantised("lookup by handle");
    const bool trained = core_.trainable;
    if (trained) core_.RequireTrainable();
    if (trained && core_.device != nullptr && !core_.device->shared()) {
      core_.RefuseUnshared("lookup by handle");
    }
    auto batch = core_.lookups.NewBatch(ids, filter);
    RowHandles::Reserve(batch.get());
    lookup_.Run(batch.get(), trained ? LookupPurpose::kTrain : LookupPurpose::kEvaluate,
                core_.unknown_row.data(), out);
    handles_.Give(batch.get(), trained, handles);
    core_.lookups.Recycle(std::move(batch));
  });
}

void Table::AccumulateByHandle(const int64_t* handles, size_t n, const float* grad) {
  Guard::Run(this, [&] {
    core_.RequireOptimizer();
    const RowHandles::Tags tags = handles_.Now();
    const size_t dim = core_.config.dim;
    std::vector<int64_t> keys;
    std::vector<float> grads;
    keys.reserve(n);
    grads.reserve(n * dim);
    for (size_t i = 0; i < n; ++i) {
      const char* row = handles_.Row(tags, handles, i);
      if (row == nullptr) continue;
      keys.push_back(Meta(row)->key);
      grads.insert(grads.end(), grad + i * dim, grad + (i + 1) * dim);
    }
    auto batch = core_.lookups.NewBatch(IdView{keys.data(), keys.size(), true}, {});
    lookup_.Run(batch.get(), LookupPurpose::kEvaluate, nullptr, nullptr);
    batch->structure = core_.Structure();
    core_.lookups.gradients().Add(*batch, grads.data(), core_.config.dim, *core_.context.kernels);
    core_.lookups.Recycle(std::move(batch));
  });
}

void Table::AdoptHandles(int64_t* handles, size_t n) {
  Guard::Run(this, [&] {
    const RowHandles::Tags tags = handles_.Now();
    for (size_t i = 0; i < n; ++i) handles_.Adopt(tags, handles + 2 * i);
  });
}

void Table::CheckHandles(const int64_t* handles, size_t n) {
  Guard::Run(this, [&] {
    const RowHandles::Tags tags = handles_.Now();
    for (size_t i = 0; i < n; ++i) {
      handles_.RequireOfTable(tags, handles, i);
      if (RowHandles::NoRow(handles + 2 * i)) continue;
      if (RowHandles::WorkerOf(handles + 2 * i) < placement().workers) continue;
      throw StaleHandle(core_.Where("handles[" + std::to_string(i) + "] was made up"));
    }
  });
}

// ---------------------------------------------------------------- gradients and the step

void Table::Accumulate(int64_t ticket, const Gradient& grad, size_t grad_rows) {
  Guard::Run(this, [&] { core_.lookups.Accumulate(ticket, grad, grad_rows); });
}

void Table::ForgetStep() {
  core_.lookups.Forget();
  if (device_ != nullptr) device_->ForgetStep();
  core_.context.pins.BeginStep();
}

void Table::DiscardGradients() {
  Guard::Run(this, [&] { ForgetStep(); });
}

void Table::NoteToken(float token) {
  Guard::Run(this, [&] {
    if (core_.trainable) core_.lookups.tokens().Add(token);
  });
}

void Table::RequireTokens(float received, bool forget) {
  Guard::Run(this, [&] {
    GradientTokens& tokens = core_.lookups.tokens();
    if (core_.trainable && !tokens.Fits(received)) {
      throw std::runtime_error(core_.Where(
          "its gradient was changed, dropped or used twice on its way to the optimizer (its sign "
          "is " +
          std::to_string(received) + ", not " + std::to_string(tokens.sum()) +
          "). Rows are trained by the sum of the gradients of all backward passes since the last "
          "step, which arithmetic on gradients does not reach: for a mean over K passes divide the "
          "loss by K and add the gradients up; to scale or clip, give the optimizer loss_scale= or "
          "clip_global_norm=; where gradients were computed and are not wanted, call "
          "discard_gradients() of the table"));
    }
    if (forget) tokens.Reset();
  });
}

double Table::GradientSquaredNorm() {
  return Guard::Run(this, [&] { return core_.lookups.SquaredNorm(); });
}

void Table::Step(const StepInput& input) {
  Guard::Run(this, [&] {
    core_.RequireOptimizer();
    if (core_.device != nullptr && !core_.device->shared()) {
      core_.RefuseUnshared("a step on the host");
    }
    const StepConstants c = optimizer_.Constants(input);
    if (device_ != nullptr) device_->RequireNonePrepared();
    core_.lookups.MergeDeferred(true);
    // The update cannot fail any more.
    ReserveStep();
    const GradientSum& gradients = core_.lookups.gradients();
    if (!gradients.empty()) {
      const bool stale = gradients.structure() != core_.Structure();
      ForAllShards([&](int s) {
        optimizer_.PrepareUpdate(s, stale);
        if (device_ != nullptr) device_->UpdateRows(c, s);
        optimizer_.Update(c, s);
      });
    }
    FinishStep();
  });
}

void Table::ReserveStep() {
  optimizer_.ReserveUpdate();
  if (device_ == nullptr) return;
  size_t rows = 0;
  for (int s = 0; s < kNumShards; ++s) rows += core_.lookups.gradients().part(s).n;
  device_->ReserveStep(rows);
}

void Table::FinishStep() {
  ForgetStep();
  evictor_.FinishStep();
}

int64_t Table::BindOptimizer(const Rule& rule) {
  return Guard::Run(this, [&] {
    RefuseQuantised("an optimizer");
    core_.RequireWrittenBack();
    if (core_.device != nullptr) core_.device->WriteBackAll();
    if (optimizer_.KeepsState(rule)) return optimizer_.Replace(rule);
    RowOptimizer::Relaid relaid = optimizer_.Relay(rule);
    // From here to the end of Adopt nothing can fail.
    ForgetStep();
    auto left = optimizer_.Adopt(std::move(relaid));
    if (core_.cache != nullptr) core_.cache->tiers.DropStale(std::move(left));
    return optimizer_.binding();
  });
}

}  // namespace msrec
