// SPDX-License-Identifier: Apache-2.0
#include "workers/lookup_exchange.h"

#include <memory>
#include <utility>

#include "table/for_shards.h"

namespace msrec {
namespace {

const char* KindOf(const LookupRequest& request, bool train) {
  if (request.handles != nullptr) return "lookup by handle of ";
  if (request.bags != nullptr) return train ? "pooled training lookup of " : "pooled lookup of ";
  return train ? "training lookup of " : "lookup of ";
}

std::string OperationName(const std::vector<LookupRequest>& requests, bool train) {
  std::vector<const ShardedTable*> tables;
  for (const LookupRequest& request : requests) tables.push_back(request.table);
  return KindOf(requests[0], train) + TableNames(tables);
}

}  // namespace

LookupExchange::LookupExchange(std::vector<LookupRequest>* requests, bool train)
    : requests_(*requests),
      train_(train),
      all_(&requests_[0].table->exchange(), OperationName(requests_, train)) {}

void LookupExchange::Run() {
  std::vector<size_t> bytes(all_.size(), 0);
  all_.Try([&] {
    for (LookupRequest& request : requests_) {
      lookups_.emplace_back();
      lookups_.back().request = &request;
      tasks_.Add(request.table);
    }
    tasks_.ForEach([&](size_t i) { Plan(&lookups_[i]); });
    bytes = WriteKeys();
  });
  all_.Begin(bytes);
  all_.Exchange(all_.memory().send.data(), all_.memory().recv.data());
  all_.Try([&] {
    ReadKeys();
    LookUpHere();
  });
  try {
    all_.Agree();
    ReturnRows();
    if (requests_[0].handles != nullptr) ReturnHandles();
  } catch (...) {
    ForgetHere();
    throw;
  }
  size_t index = 0;
  for (One& one : lookups_) Expand(&one, index++);
}

void LookupExchange::Plan(One* one) {
  const LookupRequest& request = *one->request;
  Table& table = one->here();
  one->trained = train_ && table.trainable();
  table.CheckLookup(IdView{}, request.filter, train_);
  CheckBatchSize(request.ids, one->table().name());
  one->kept = one->table().NewLookup();
  KeptLookup& kept = *one->kept;
  if (request.bags != nullptr) {
    one->pooling = std::make_unique<BagPooling>(table.NewPooling());
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

void LookupExchange::LookUpHere() {
  size_t row_floats = 0;
  size_t sent_floats = 0;
  for (One& one : lookups_) {
    one.kept->rows.Reset(kLineFloats + one.kept->owned * one.dim());
    sent_floats += one.kept->owned * one.dim();
    if (!one.replicated()) row_floats += one.kept->keys.total() * one.dim();
  }
  all_.memory().rows.Reset((kLineFloats + row_floats) * sizeof(float));
  // Keys have been sent: the memory takes rows to send, or handles that come.
  if (lookups_.size() > 1) all_.memory().send.Reset(sent_floats * sizeof(float));
  if (requests_[0].handles != nullptr) {
    all_.memory().send.Reset(2 * lookups_[0].kept->keys.total() * sizeof(int64_t));
  }
  tasks_.ForEach([&](size_t i) {
    One* const one = &lookups_[i];
    KeptLookup& kept = *one->kept;
    const IdView keys{kept.owned_keys.data(), kept.owned, true};
    IdFilter filter;
    filter.counts = kept.occurrences.data();
    if (one->request->handles != nullptr) {
      int64_t* handles = kept.handles.Reset(2 * kept.owned);
      one->here().LookupWithHandles(keys, filter, one->rows(), handles);
    } else if (train_) {
      kept.owner_ticket = one->here().LookupTrain(keys, filter, one->rows());
    } else {
      one->here().LookupEval(keys, filter, one->rows());
    }
  });
}

void LookupExchange::ForgetHere() {
  for (One& one : lookups_) {
    if (one.trained && one.kept->owner_ticket > 0) one.here().ForgetLookup(one.kept->owner_ticket);
  }
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
    kept.keys.Point(&batch, rows_.data() + index * all_.size(), dim);
    if (pooled) {
      one->pooling->Pool(&batch, one->ids, *request.bags, nullptr, request.out);
    } else {
      if (batch.begin[kNumShards] < batch.n) ZeroRows(request.out, batch.n, batch.stride, dim);
      const RowKernels& kernels =
          ActiveKernels().RowsOf(NumberType::kFloat32, NumberType::kFloat32);
      ForShards(batch, [&](int s) {
        const size_t first = batch.begin[s];
        kernels.gather(batch.row.data() + first, batch.inverse.data() + first,
                       batch.pos.data() + first, batch.begin[s + 1] - first, nullptr, dim,
                       request.out);
      });
    }
  }
  if (one->trained && request.handles == nullptr) {
    request.ticket = one->table().Keep(std::move(one->kept));
  } else {
    request.ticket = StepLookups::kFrozenTicket;
    one->table().Recycle(std::move(one->kept));
  }
}

void LookUpOverWorkers(std::vector<LookupRequest>* requests, bool train) {
  if (train) {
    LookupExchange(requests, true).Run();
    return;
  }
  // Of a table that all workers have whole, evaluation needs nobody else.
  std::vector<LookupRequest> others;
  for (const LookupRequest& request : *requests) {
    if (request.table->placement().spread()) {
      others.push_back(request);
    } else if (request.bags == nullptr) {
      request.table->table().LookupEval(request.ids, request.filter, request.out);
    } else {
      request.table->table().PoolEval(request.ids, request.filter, *request.bags, request.out);
    }
  }
  if (!others.empty()) LookupExchange(&others, false).Run();
}

}  // namespace msrec
