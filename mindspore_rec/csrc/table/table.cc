// SPDX-License-Identifier: Apache-2.0
#include "table/table.h"

#include "readers/quantised_rows.h"
#include "rows/for_shards.h"
#include "table/cache/row_cache.h"
#include "table/table_guard.h"

namespace msrec {

Table::Table(const TableConfig& config) : engine_(config) {}

Table::~Table() { Close(); }

void Table::Close() {
  if (!core_.mutex.own_process()) {
    // In a forked child, the cache is not destroyed, because its threads, files and connections
    // belong to the parent.
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
    // The tier may be unavailable. Rows that stay in the tier do no harm, because no table reads
    // rows with the old layout.
  }
  engine_.ForgetStep();
  core_.lookups.Free();
  core_.shards.clear();
  core_.cache.reset();
  core_.quantised.reset();
  emptied_ = true;
  closing_.notify_all();
}

bool Table::trainable() {
  return TableGuard::Run(&core_, [&] { return core_.trainable; });
}

void Table::SetTrainable(bool trainable) {
  TableGuard::Run(&core_, [&] { core_.trainable = trainable; });
}

// ---------------------------------------------------------------- lookups

void Table::CheckLookup(const IdView& ids, const IdFilter& filter, bool train) {
  TableGuard::Run(&core_, [&] {
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
  return TableGuard::Run(&core_, [&] {
    CheckNumbers(out);
    const bool trained = train && core_.trainable;
    if (trained) core_.RequireTrainable();
    if (trained && core_.device != nullptr && !core_.device->shared()) {
      core_.RefuseUnshared("a lookup of this kind");
    }
    if (bags != nullptr) engine_.pooling.Check(ids, *bags);
    if (core_.quantised != nullptr) {
      const auto& unknown_row = train ? core_.unknown_row : core_.serving_unknown_row;
      engine_.quantised.LookUp(ids, filter, bags, unknown_row.data(), out);
      return StepLookups::kFrozenTicket;
    }
    auto batch = core_.lookups.NewBatch(ids, filter);
    const bool places = trained && core_.device != nullptr;
    std::vector<SlotSwap> swaps;
    if (places) engine_.device_cache->RequireSlots(batch.get(), trained, &swaps);
    auto kept = core_.lookups.NewPlace();
    core_.lookups.ReserveNote();
    if (bags != nullptr) engine_.pooling.Reserve(batch.get(), *bags);
    const auto purpose = trained ? LookupPurpose::kTrain : LookupPurpose::kEvaluate;
    const float* unknown = (train ? core_.unknown_row : core_.serving_unknown_row).data();
    if (bags == nullptr) {
      engine_.lookup.Run(batch.get(), purpose, unknown, out);
    } else {
      engine_.lookup.Run(batch.get(), purpose, nullptr, nullptr);
      engine_.pooling.Pool(batch.get(), ids, *bags, unknown, out.floats);
    }
    if (places) engine_.device_cache->Place(*batch, &swaps);
    if (train && core_.context.placement.workers == 1) core_.lookups.Note(ids);
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

void Table::NoteLookup(const IdView& ids) {
  TableGuard::Run(&core_, [&] {
    core_.lookups.ReserveNote();
    core_.lookups.Note(ids);
  });
}

std::vector<std::pair<uint64_t, size_t>> Table::RecentLookups() {
  return TableGuard::Run(&core_, [&] { return core_.lookups.recent(); });
}

// ---------------------------------------------------------------- lookups in two parts

void Table::PrepareLookup(const IdView& ids, const IdFilter& filter, bool by_handle,
                          PreparedLookups* prepared) {
  TableGuard::Run(&core_, [&] {
    core_.RequireTrainable();
    PreparedLookups::One one{core_.lookups.NewBatch(ids, filter), core_.lookups.NewPlace()};
    if (by_handle) RowHandles::Reserve(one.batch.get());
    prepared->lookups.push_back(std::move(one));
    if (prepared->lookups.size() == 1) prepared->inserted = core_.Inserted();
    engine_.lookup.Prepare(prepared->lookups.back().batch.get(), &prepared->pending);
  });
}

int64_t Table::FinishLookup(PreparedLookups* prepared, float* out, int64_t* handles) {
  return TableGuard::Run(&core_, [&] {
    PreparedLookups::One& one = prepared->lookups.at(prepared->finished);
    prepared->moved |= core_.Inserted() != prepared->inserted;
    engine_.lookup.Finish(one.batch.get(), prepared->moved, core_.unknown_row.data(), out);
    ++prepared->finished;
    prepared->inserted = core_.Inserted();
    if (handles == nullptr) return core_.lookups.Keep(std::move(one.batch), std::move(one.place));
    engine_.handles.Give(one.batch.get(), true, handles);
    core_.lookups.Recycle(std::move(one.batch));
    return StepLookups::kFrozenTicket;
  });
}

// ---------------------------------------------------------------- lookups by handle

void Table::LookupWithHandles(const IdView& ids, const IdFilter& filter, float* out,
                              int64_t* handles) {
  TableGuard::Run(&core_, [&] {
    engine_.quantised.Refuse("lookup by handle");
    const bool trained = core_.trainable;
    if (trained) core_.RequireTrainable();
    if (trained && core_.device != nullptr && !core_.device->shared()) {
      core_.RefuseUnshared("lookup by handle");
    }
    auto batch = core_.lookups.NewBatch(ids, filter);
    RowHandles::Reserve(batch.get());
    engine_.lookup.Run(batch.get(), trained ? LookupPurpose::kTrain : LookupPurpose::kEvaluate,
                       core_.unknown_row.data(), out);
    engine_.handles.Give(batch.get(), trained, handles);
    core_.lookups.Recycle(std::move(batch));
  });
}

void Table::AccumulateByHandle(const int64_t* handles, size_t n, const float* grad) {
  TableGuard::Run(&core_, [&] {
    core_.RequireOptimizer();
    const RowHandles::Tags tags = engine_.handles.Now();
    const size_t dim = core_.config.dim;
    std::vector<int64_t> keys;
    std::vector<float> grads;
    keys.reserve(n);
    grads.reserve(n * dim);
    for (size_t i = 0; i < n; ++i) {
      const char* row = engine_.handles.Row(tags, handles, i);
      if (row == nullptr) continue;
      keys.push_back(Meta(row)->key);
      grads.insert(grads.end(), grad + i * dim, grad + (i + 1) * dim);
    }
    auto batch = core_.lookups.NewBatch(IdView{keys.data(), keys.size(), true}, {});
    engine_.lookup.Run(batch.get(), LookupPurpose::kEvaluate, nullptr, nullptr);
    batch->structure = core_.Structure();
    core_.lookups.gradients().Add(*batch, grads.data(), core_.config.dim, *core_.context.kernels);
    core_.lookups.Recycle(std::move(batch));
  });
}

void Table::AdoptHandles(int64_t* handles, size_t n) {
  TableGuard::Run(&core_, [&] {
    const RowHandles::Tags tags = engine_.handles.Now();
    for (size_t i = 0; i < n; ++i) engine_.handles.Adopt(tags, handles + 2 * i);
  });
}

void Table::CheckHandles(const int64_t* handles, size_t n) {
  TableGuard::Run(&core_, [&] {
    const RowHandles::Tags tags = engine_.handles.Now();
    for (size_t i = 0; i < n; ++i) {
      engine_.handles.RequireOfTable(tags, handles, i);
      if (RowHandles::NoRow(handles + 2 * i)) continue;
      if (RowHandles::WorkerOf(handles + 2 * i) < core_.context.placement.workers) continue;
      throw StaleHandle(core_.Where("handles[" + std::to_string(i) + "] was made up"));
    }
  });
}

// ---------------------------------------------------------------- gradients and the step

void Table::Accumulate(int64_t ticket, const Gradient& grad, size_t grad_rows) {
  TableGuard::Run(&core_, [&] { core_.lookups.Accumulate(ticket, grad, grad_rows); });
}

void Table::DiscardGradients() {
  TableGuard::Run(&core_, [&] { engine_.ForgetStep(); });
}

void Table::NoteToken(float token) {
  TableGuard::Run(&core_, [&] {
    if (core_.trainable) core_.lookups.tokens().Add(token);
  });
}

void Table::RequireTokens(float received, bool forget) {
  TableGuard::Run(&core_, [&] {
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
  return TableGuard::Run(&core_, [&] { return core_.lookups.SquaredNorm(); });
}

void Table::Step(const StepInput& input) {
  TableGuard::Run(&core_, [&] {
    core_.RequireOptimizer();
    if (core_.device != nullptr && !core_.device->shared()) {
      core_.RefuseUnshared("a step on the host");
    }
    const StepConstants c = engine_.optimizer.Constants(input);
    if (engine_.device_cache != nullptr) engine_.device_cache->RequireNonePrepared();
    core_.lookups.MergeDeferred(true);
    // After ReserveStep, the update cannot fail.
    ReserveStep();
    const GradientSum& gradients = core_.lookups.gradients();
    if (!gradients.empty()) {
      const bool stale = gradients.structure() != core_.Structure();
      ForAllShards([&](int s) {
        engine_.optimizer.PrepareUpdate(s, stale);
        if (engine_.device_cache != nullptr) engine_.device_cache->UpdateRows(c, s);
        engine_.optimizer.Update(c, s);
      });
    }
    engine_.FinishStep();
  });
}

void Table::ReserveStep() {
  engine_.optimizer.ReserveUpdate();
  if (engine_.device_cache == nullptr) return;
  size_t rows = 0;
  for (int s = 0; s < kNumShards; ++s) rows += core_.lookups.gradients().part(s).n;
  engine_.device_cache->ReserveStep(rows);
}

int64_t Table::BindOptimizer(const Rule& rule) {
  return TableGuard::Run(&core_, [&] {
    engine_.quantised.Refuse("an optimizer");
    core_.RequireWrittenBack();
    if (core_.device != nullptr) core_.device->WriteBackAll();
    if (engine_.optimizer.KeepsState(rule)) return engine_.optimizer.Replace(rule);
    RowOptimizer::Relaid relaid = engine_.optimizer.Relay(rule);
    // From here to the end of Adopt, nothing can fail.
    engine_.ForgetStep();
    auto left = engine_.optimizer.Adopt(std::move(relaid));
    if (core_.cache != nullptr) core_.cache->tiers.DropStale(std::move(left));
    return engine_.optimizer.binding();
  });
}

}  // namespace msrec
