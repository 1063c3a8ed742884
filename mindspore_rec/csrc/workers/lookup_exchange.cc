// SPDX-License-Identifier: Apache-2.0
//
// Lookups over workers: keys to their owners, rows back, rows to positions or bags.
#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>

#include "table/for_shards.h"
#include "util/bytes.h"
#include "workers/sharded_table.h"

namespace msrec {
namespace {

// In front of rows: a row's metadata would be there. A cache line, so that rows begin with one.
constexpr size_t kLineFloats = 16;
constexpr size_t kKeyBytes = sizeof(int64_t) + sizeof(uint32_t);

size_t Padded(size_t bytes) { return (bytes + 7) / 8 * 8; }

// What one lookup sends to one worker: how many keys, the keys, their occurrences.
size_t MessageBytes(size_t keys) { return sizeof(uint64_t) + Padded(keys * kKeyBytes); }

std::string Subject(const std::vector<LookupRequest>& requests) {
  if (requests.size() == 1) return "table '" + requests[0].table->name() + "'";
  std::string names = "tables ";
  for (const LookupRequest& request : requests) {
    if (names.back() != ' ') names += ", ";
    names += "'" + request.table->name() + "'";
  }
  return names;
}

void ZeroRows(const LookupRequest& request, size_t stride, size_t rows) {
  const size_t dim = request.table->table().dim();
  for (size_t i = 0; i < (stride == 1 ? 1 : rows); ++i) {
    const size_t together = stride == 1 ? rows : 1;
    ZeroBytes(request.out + i * stride * dim, together * dim * sizeof(float));
  }
}

}  // namespace

// Does the lookups of one operation.
class LookupExchange {
 public:
  LookupExchange(std::vector<LookupRequest>* requests, bool train)
      : requests_(*requests),
        train_(train),
        subject_(Subject(*requests)),
        all_(&requests_[0].table->exchange(),
             requests_[0].handles ? "lookup by handle of"
             : train ? (requests_[0].bags ? "pooled training lookup of" : "training lookup of")
                     : (requests_[0].bags ? "pooled lookup of" : "lookup of"),
             subject_) {}

  void Run();

 private:
  struct One {
    LookupRequest* request = nullptr;
    bool trained = false;
    std::unique_ptr<KeptLookup> kept;
    std::unique_ptr<BagPooling> pooling;
    IdView ids;  // none where this worker is idle

    ShardedTable& table() const { return *request->table; }
    Table& here() const { return request->table->table(); }
    size_t dim() const { return static_cast<size_t>(here().dim()); }
    bool replicated() const { return table().placement().replicated(); }
    // Number of keys that this worker sends to r.
    size_t sent(int r) const { return kept->keys.count(replicated() ? 0 : r); }
    // The rows of the keys that this worker owns.
    float* rows() const { return kept->rows.data() + kLineFloats; }
  };

  void Plan(One* one);
  void SendKeys();
  void ReceiveKeys();
  void LookUpHere();
  void ForgetHere();
  void ReturnRows();
  void ReturnHandles();
  void Expand(One* one, size_t index);
  // Call fn(one) with all lookups, in parallel over tables.
  template <typename Fn>
  void ForEachTable(const Fn& fn);

  std::vector<LookupRequest>& requests_;
  const bool train_;
  const std::string subject_;
  Collective all_;
  std::vector<One> lookups_;
  std::vector<std::vector<size_t>> tasks_;  // lookups of one table
  std::vector<float*> rows_;                // by lookup and worker: where its rows begin
};

template <typename Fn>
void LookupExchange::ForEachTable(const Fn& fn) {
  if (tasks_.size() == 1) {
    for (const size_t i : tasks_[0]) fn(&lookups_[i]);
    return;
  }
  ThreadPool::Global().ParallelFor(static_cast<int64_t>(tasks_.size()), [&](int64_t task) {
    for (const size_t i : tasks_[task]) fn(&lookups_[i]);
  });
}

void LookupExchange::Run() {
  std::vector<size_t> bytes(all_.size(), 0);
  all_.Try([&] {
    for (LookupRequest& request : requests_) {
      One one;
      one.request = &request;
      lookups_.push_back(std::move(one));
      const auto same = std::find_if(tasks_.begin(), tasks_.end(), [&](const auto& task) {
        return requests_[task[0]].table == request.table;
      });
      if (same == tasks_.end()) {
        tasks_.push_back({lookups_.size() - 1});
      } else {
        same->push_back(lookups_.size() - 1);
      }
    }
    ForEachTable([&](One* one) { Plan(one); });
    for (const One& one : lookups_) {
      for (int r = 0; r < all_.size(); ++r) bytes[r] += MessageBytes(one.sent(r));
    }
    size_t total = 0;
    for (const size_t part : bytes) total += part;
    all_.memory().send.Reset(total);
    SendKeys();
  });
  all_.Begin(bytes);
  all_.Exchange(all_.memory().send.data(), all_.memory().recv.data());
  all_.Try([&] {
    ReceiveKeys();
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
  const size_t places = request.ids.size * request.ids.stride;
  if (places >= std::numeric_limits<uint32_t>::max()) {
    throw std::invalid_argument("table '" + one->table().name() +
                                "': a batch must have fewer than 2^32 - 1 ids, got " +
                                std::to_string(places));
  }
  one->kept = one->table().NewLookup();
  KeptLookup& kept = *one->kept;
  if (request.bags != nullptr) {
    one->pooling = std::make_unique<BagPooling>(table.NewPooling());
    one->pooling->Check(request.ids, *request.bags);
  }
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

// A message to a worker: that of the first lookup, of the second, ...
void LookupExchange::SendKeys() {
  char* at = all_.memory().send.data();
  std::vector<std::vector<int64_t*>> keys(lookups_.size());
  std::vector<std::vector<uint32_t*>> occurrences(lookups_.size());
  for (int r = 0; r < all_.size(); ++r) {
    for (size_t i = 0; i < lookups_.size(); ++i) {
      const uint64_t count = lookups_[i].sent(r);
      std::memcpy(at, &count, sizeof(count));
      keys[i].push_back(reinterpret_cast<int64_t*>(at + sizeof(count)));
      occurrences[i].push_back(reinterpret_cast<uint32_t*>(keys[i].back() + count));
      at += MessageBytes(count);
    }
  }
  for (size_t i = 0; i < lookups_.size(); ++i) {
    const One& one = lookups_[i];
    const KeptLookup& kept = *one.kept;
    kept.keys.Write(kept.batch, keys[i].data(), occurrences[i].data());
    // Everybody gets the same keys of a table that everybody has.
    for (int r = 1; one.replicated() && r < all_.size(); ++r) {
      std::copy_n(keys[i][0], one.sent(0), keys[i][r]);
      std::copy_n(occurrences[i][0], one.sent(0), occurrences[i][r]);
    }
  }
}

void LookupExchange::ReceiveKeys() {
  for (One& one : lookups_) {
    one.kept->received.assign(all_.size(), 0);
    one.kept->owned = 0;
  }
  const char* at = all_.memory().recv.data();
  std::vector<const char*> messages;
  for (int r = 0; r < all_.size(); ++r) {
    for (One& one : lookups_) {
      uint64_t count = 0;
      std::memcpy(&count, at, sizeof(count));
      messages.push_back(at + sizeof(count));
      one.kept->received[r] = count;
      one.kept->owned += count;
      at += MessageBytes(count);
    }
  }
  for (size_t i = 0; i < lookups_.size(); ++i) {
    KeptLookup& kept = *lookups_[i].kept;
    int64_t* keys = kept.owned_keys.Reset(kept.owned);
    uint32_t* occurrences = kept.occurrences.Reset(kept.owned);
    for (int r = 0; r < all_.size(); ++r) {
      const char* message = messages[r * lookups_.size() + i];
      const size_t count = kept.received[r];
      CopyBytes(keys, message, count * sizeof(int64_t));
      CopyBytes(occurrences, message + count * sizeof(int64_t), count * sizeof(uint32_t));
      keys += count;
      occurrences += count;
    }
  }
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
  if (lookups_.size() > 1) all_.memory().send.Reset(sent_floats * sizeof(float));
  ForEachTable([&](One* one) {
    KeptLookup& kept = *one->kept;
    const IdView keys{kept.owned_keys.data(), kept.owned, true};
    IdFilter filter;
    filter.counts = kept.occurrences.data();
    if (one->request->handles != nullptr) {
      int64_t* handles = kept.handles.Reset(2 * kept.owned);
      one->here().LookupWithHandles(keys, filter, one->rows(), handles);
      all_.memory().send.Reset(2 * kept.keys.total() * sizeof(int64_t));
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

// A message to a worker: the rows of the first lookup, of the second, ...
void LookupExchange::ReturnRows() {
  std::vector<size_t> sent(all_.size(), 0), received(all_.size(), 0);
  std::vector<const One*> travelling;
  float* rows = reinterpret_cast<float*>(all_.memory().rows.data()) + kLineFloats;
  float* next = rows;
  rows_.assign(lookups_.size() * all_.size(), nullptr);
  for (One& one : lookups_) {
    if (!one.replicated()) travelling.push_back(&one);
  }
  for (int r = 0; r < all_.size(); ++r) {
    for (size_t i = 0; i < lookups_.size(); ++i) {
      One& one = lookups_[i];
      float*& begin = rows_[i * all_.size() + r];
      if (one.replicated()) {
        begin = one.rows();
        for (int before = 0; before < all_.rank(); ++before) {
          begin += one.kept->received[before] * one.dim();
        }
        continue;
      }
      begin = next;
      next += one.sent(r) * one.dim();
      received[r] += one.sent(r) * one.dim() * sizeof(float);
      sent[r] += one.kept->received[r] * one.dim() * sizeof(float);
    }
  }
  if (travelling.empty()) return;
  const char* send = nullptr;
  if (travelling.size() == 1) {
    send = reinterpret_cast<const char*>(travelling[0]->rows());
  } else {
    char* at = all_.memory().send.data();
    send = at;
    std::vector<const float*> from;
    for (const One* one : travelling) from.push_back(one->rows());
    for (int r = 0; r < all_.size(); ++r) {
      for (size_t i = 0; i < travelling.size(); ++i) {
        const size_t floats = travelling[i]->kept->received[r] * travelling[i]->dim();
        CopyBytes(at, from[i], floats * sizeof(float));
        from[i] += floats;
        at += floats * sizeof(float);
      }
    }
  }
  all_.Exchange(send, sent, rows, received);
}

void LookupExchange::ReturnHandles() {
  const LookupRequest& request = requests_[0];
  const KeptLookup& kept = *lookups_[0].kept;
  std::vector<size_t> sent, received;
  for (int r = 0; r < all_.size(); ++r) {
    sent.push_back(kept.received[r] * 2 * sizeof(int64_t));
    received.push_back(lookups_[0].sent(r) * 2 * sizeof(int64_t));
  }
  auto* handles = reinterpret_cast<int64_t*>(all_.memory().send.data());
  all_.Exchange(kept.handles.data(), sent, handles, received);
  Table& table = lookups_[0].here();
  table.AdoptHandles(handles, kept.keys.total());
  for (size_t i = 0; i < 2 * kept.grad_rows; i += 2) request.handles[i] = -1;
  table.AdoptHandles(request.handles, kept.grad_rows);
  const Batch& batch = kept.batch;
  ForShards(batch, [&](int s) {
    for (size_t i = batch.begin[s]; i < batch.begin[s + 1]; ++i) {
      const size_t number = kept.keys.number(batch.begin[s] + batch.inverse[i]);
      std::copy_n(handles + 2 * number, 2, request.handles + 2 * size_t{batch.pos[i]});
    }
  });
}

void LookupExchange::Expand(One* one, size_t index) {
  KeptLookup& kept = *one->kept;
  Batch& batch = kept.batch;
  LookupRequest& request = *one->request;
  const int dim = one->here().dim();
  const bool pooled = one->pooling != nullptr;
  if (kept.idle) {
    ZeroRows(request, pooled ? 1 : request.ids.stride, kept.grad_rows);
  } else {
    kept.keys.Point(&batch, rows_.data() + index * all_.size(), dim);
    if (pooled) {
      one->pooling->Pool(&batch, one->ids, *request.bags, nullptr, request.out);
    } else {
      if (batch.begin[kNumShards] < batch.n) ZeroRows(request, batch.stride, batch.n);
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
