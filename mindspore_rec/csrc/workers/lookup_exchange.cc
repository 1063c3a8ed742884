// SPDX-License-Identifier: Apache-2.0
#include "workers/lookup_exchange.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "rows/for_shards.h"
#include "util/bytes.h"

namespace msrec {
namespace {

const char* KindOf(const LookupRequest& request, bool train) {
  if (request.handles != nullptr) return "lookup by handle of ";
  if (request.bags != nullptr) return train ? "pooled training lookup of " : "pooled lookup of ";
  return train ? "training lookup of " : "lookup of ";
}

// True if a lookup needs no other worker: the lookup is an evaluation, and this worker has all rows
// of the table.
bool IsLocal(const LookupRequest& request, bool train) {
  return !train && !request.table->placement().spread();
}

void LookUpHereOnly(const LookupRequest& request) {
  Table& table = request.table->table();
  if (request.bags == nullptr) {
    table.LookupEval(request.ids, request.filter, request.out);
  } else {
    table.PoolEval(request.ids, request.filter, *request.bags, request.out.floats);
  }
}

std::string OperationName(const LookupRequest* requests, size_t n, bool train) {
  std::vector<const ShardedTable*> tables;
  for (size_t i = 0; i < n; ++i) {
    if (!IsLocal(requests[i], train)) tables.push_back(requests[i].table);
  }
  return KindOf(requests[0], train) + TableNames(tables);
}

// Convert n float32 numbers to `type`, in place. `type` must represent each number exactly.
void NarrowInPlace(NumberType type, size_t n, float* numbers) {
  if (type == NumberType::kFloat32) return;
  constexpr size_t kPart = 1024;
  uint16_t part[kPart];
  for (size_t first = 0; first < n; first += kPart) {
    const size_t count = std::min(kPart, n - first);
    Narrow(type, numbers + first, count, part);
    CopyBytes(reinterpret_cast<char*>(numbers) + first * sizeof(part[0]), part,
              count * sizeof(part[0]));
  }
}

}  // namespace

LookupExchange::LookupExchange(LookupRequest* requests, size_t n, bool train)
    : requests_(requests),
      size_(n),
      train_(train),
      all_(&requests[0].table->exchange(), [=] { return OperationName(requests, n, train); }) {}

void LookupExchange::Run() {
  all_.Try([&] {
    AddLookups();
    tasks_.ForEach([&](size_t i) { Plan(&lookups_[i]); });
    WriteKeys();
  });
  all_.Begin();
  all_.Exchange(all_.memory().send.data(), all_.memory().recv.data());
  all_.Try([&] {
    ReadKeys();
    MakeRoom();
    tasks_.ForEach([&](size_t i) { PrepareHere(&lookups_[i]); });
    PlanReturn();
  });
  all_.Agree();
  all_.Must([&] {
    tasks_.ForEach([&](size_t i) { FinishHere(&lookups_[i]); });
    ReturnRows();
    if (by_handle()) ReturnHandles();
    size_t index = 0;
    for (One& one : lookups_) Expand(&one, index++);
  });
}

void LookupExchange::AddLookups() {
  lookups_.reserve(size_);
  for (size_t i = 0; i < size_; ++i) {
    LookupRequest& request = requests_[i];
    if (IsLocal(request, train_)) {
      LookUpHereOnly(request);
      continue;
    }
    lookups_.emplace_back();
    One& one = lookups_.back();
    one.request = &request;
    for (const One& before : lookups_) {
      if (before.request->table == request.table && before.prepared != nullptr) {
        one.prepared = before.prepared;
      }
    }
    if (one.prepared == nullptr) one.prepared = std::make_shared<PreparedLookups>();
    tasks_.Add(request.table);
  }
}

void LookupExchange::Plan(One* one) {
  const LookupRequest& request = *one->request;
  Table& table = one->here();
  one->trained = train_ && table.trainable();
  table.CheckNumbers(request.out);
  table.CheckLookup(IdView{}, request.filter, train_);
  CheckBatchSize(request.ids, one->table().name());
  one->kept = one->table().NewLookup();
  one->place = ShardedTable::NewPlace();
  KeptLookup& kept = *one->kept;
  if (request.bags != nullptr) {
    one->pooling = std::make_unique<BagPooling>(table.NewPooling(one->type()));
    one->pooling->Check(request.ids, *request.bags);
  }
  if (train_ && request.handles == nullptr && !all_.group().idle()) table.NoteLookup(request.ids);
  kept.grad_rows = request.bags != nullptr ? request.bags->offsets.size : request.ids.size;
  kept.idle = train_ && all_.group().idle();
  one->ids = request.ids;
  if (kept.idle) one->ids.size = 0;
  IdFilter filter = request.filter;
  filter.vocabulary = table.config().vocabulary;
  Batch& batch = kept.batch;
  batch.pooled = false;
  batch.Partition(one->ids, filter);
  if (batch.begin[kNumShards] < one->ids.size) table.CheckIds(one->ids, request.filter);
  if (one->pooling != nullptr && !kept.idle) one->pooling->Reserve(&batch, *request.bags);
  kept.keys.Plan(&batch, one->table().placement());
}

void LookupExchange::MakeRoom() {
  size_t coming = kLine;
  size_t going = 0;
  for (One& one : lookups_) {
    one.kept->rows.Reset(kLine / sizeof(float) + one.kept->owned * one.dim());
    if (one.replicated()) continue;
    for (int r = 0; r < all_.size(); ++r) {
      coming += MessageBytes(one, one.sent(r));
      going += MessageBytes(one, one.kept->received[r]);
    }
  }
  all_.memory().rows.Reset(coming);
  // The keys have been sent, so the memory `send` can be used again for rows or handles.
  if (lookups_.size() > 1) all_.memory().send.Reset(going);
  if (by_handle()) {
    all_.memory().send.Reset(2 * lookups_[0].kept->keys.total() * sizeof(int64_t));
    lookups_[0].kept->handles.Reset(2 * lookups_[0].kept->owned);
  }
}

void LookupExchange::PrepareHere(One* one) {
  KeptLookup& kept = *one->kept;
  const IdView keys{kept.owned_keys.data(), kept.owned, true};
  IdFilter filter;
  filter.counts = kept.occurrences.data();
  if (one->trained) {
    one->here().PrepareLookup(keys, filter, by_handle(), one->prepared.get());
  } else if (by_handle()) {
    one->here().LookupWithHandles(keys, filter, one->rows(), kept.handles.data());
  } else if (train_) {
    kept.owner_ticket = one->here().LookupTrain(keys, filter, one->rows());
  } else {
    one->here().LookupEval(keys, filter, one->rows());
  }
}

void LookupExchange::FinishHere(One* one) {
  if (one->trained) {
    int64_t* const handles = by_handle() ? one->kept->handles.data() : nullptr;
    one->kept->owner_ticket = one->here().FinishLookup(one->prepared.get(), one->rows(), handles);
  }
  NarrowInPlace(one->type(), one->kept->owned * one->dim(), one->rows());
}

size_t LookupExchange::MessageBytes(const One& one, size_t rows) const {
  const size_t bytes = rows * one.row_bytes();
  // The rows of a single lookup are sent without a copy. The rows of several lookups are padded, so
  // that each lookup's rows begin at an aligned address.
  return lookups_.size() == 1 ? bytes : Padded(bytes);
}

void LookupExchange::Expand(One* one, size_t index) {
  KeptLookup& kept = *one->kept;
  Batch& batch = kept.batch;
  LookupRequest& request = *one->request;
  const int dim = one->here().dim();
  const bool pooled = one->pooling != nullptr;
  if (kept.idle) {
    ZeroRows(request.out, kept.grad_rows, pooled ? 1 : request.ids.stride, dim);
  } else {
    kept.keys.Point(&batch, rows_.data() + index * all_.size(), one->row_bytes());
    if (pooled) {
      one->pooling->Pool(&batch, one->ids, *request.bags, nullptr, request.out.floats);
    } else {
      if (batch.begin[kNumShards] < batch.n) ZeroRows(request.out, batch.n, batch.stride, dim);
      const RowKernels& kernels = ActiveKernels().RowsOf(one->type(), NumberType::kFloat32);
      ForShards(batch, [&](int s) {
        const size_t first = batch.begin[s];
        GatherRows(kernels, batch.row.data() + first, batch.inverse.data() + first,
                   batch.pos.data() + first, batch.begin[s + 1] - first, nullptr, dim, request.out);
      });
    }
  }
  if (one->trained && request.handles == nullptr) {
    request.ticket = one->table().Keep(std::move(one->kept), std::move(one->place));
  } else {
    request.ticket = StepLookups::kFrozenTicket;
    one->table().Recycle(std::move(one->kept));
  }
}

void LookUpOverWorkers(LookupRequest* requests, size_t n, bool train) {
  if (!std::all_of(requests, requests + n, [=](const auto& one) { return IsLocal(one, train); })) {
    LookupExchange(requests, n, train).Run();
    return;
  }
  for (size_t i = 0; i < n; ++i) LookUpHereOnly(requests[i]);
}

}  // namespace msrec
