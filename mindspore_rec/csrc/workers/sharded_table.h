// SPDX-License-Identifier: Apache-2.0
//
// ShardedTable: a table over all workers. Each has a Table with the rows it owns; lookups send the
// distinct keys of a batch to their owners and get rows back, gradients go the same way, summed by
// key. N workers with a batch each do what one table does with their concatenation, to rounding;
// repeated runs give the same bits.
//
// The way of a step: training lookups give tickets; Accumulate takes a lookup's gradient;
// ExchangeGradients brings all tables' gradients to the owners; then Step is this worker's alone.
// Each but Accumulate and Step is called by all workers in the same order. A failure on one worker
// throws on all (collective.h), and leaves the rows of all as they were: a lookup is prepared by
// each owner, all agree, and then it is done.
//
// A worker without a batch of its own in a step (WorkerGroup::idle) takes part without keys; its
// training lookups read zeros and its gradients are dropped.
//
// Thread-safe as Table is.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "table/table.h"
#include "workers/collective.h"
#include "workers/packed_keys.h"

namespace msrec {

// A lookup. A training lookup is kept until its gradient has been brought to the owners.
struct KeptLookup {
  Batch batch;
  PackedKeys keys;     // of this worker's batch
  Buffer<float> sums;  // the gradient by packed key
  size_t grad_rows = 0;
  bool idle = false;
  bool summed = false;  // `sums` is filled
  // Of the keys of all workers' batches that this worker owns, worker 0's keys first.
  int64_t owner_ticket = 0;
  std::vector<size_t> received;  // number of each worker's
  size_t owned = 0;              // their number
  Buffer<int64_t> owned_keys;
  Buffer<uint32_t> occurrences;
  Buffer<float> rows;
  Buffer<int64_t> handles;
};

class ShardedTable {
 public:
  // Requires: the exchange outlives it. `table` was made with the exchange's rank and number of
  // workers as its placement.
  ShardedTable(TableExchange* exchange, std::shared_ptr<Table> table);

  Table& table() const { return *table_; }
  const std::string& name() const { return table_->config().name; }
  const Placement& placement() const { return table_->placement(); }
  TableExchange& exchange() const { return *exchange_; }

  // As the methods of Table, over all workers.
  int64_t LookupTrain(const IdView& ids, const IdFilter& filter, const RowsOut& out);
  void LookupEval(const IdView& ids, const IdFilter& filter, const RowsOut& out);
  int64_t PoolTrain(const IdView& ids, const IdFilter& filter, const BagView& bags, float* out);
  void PoolEval(const IdView& ids, const IdFilter& filter, const BagView& bags, float* out);

  // As the methods of Table; not of a replicated table. A handle names its row only to the worker
  // that looked it up.
  void LookupWithHandles(const IdView& ids, const IdFilter& filter, float* out, int64_t* handles);
  // After a failure the table has no gradients and lookups any more.
  void AccumulateByHandle(const int64_t* handles, size_t n, const float* grad);

  // Begin to promote the rows of batches to come: rows of this worker's ids and of all others',
  // each at its owner. Return the number of what was begun here, as TableTiers::Prefetch. All
  // workers call it, by an exchange that no operator uses.
  int64_t Prefetch(TableExchange* ahead, const IdView& ids);

  // Sum the gradient of this worker's lookup with that ticket by key, until ExchangeGradients.
  void Accumulate(int64_t ticket, const Gradient& grad, size_t grad_rows);
  // Return the sum of squares of the gradients of all workers' rows, after ExchangeGradients.
  double GradientSquaredNorm();
  // Update this worker's rows. Throws std::runtime_error where gradients were not exchanged.
  void Step(const StepInput& input);
  // Forget lookups and gradients since the last step; this worker's alone.
  void DiscardGradients();

 private:
  friend class LookupExchange;
  friend class GradientExchange;

  using Kept = std::map<int64_t, std::unique_ptr<KeptLookup>>;

  // Most spare lookups, and most lookups that wait for a gradient, as in a table.
  static constexpr size_t kMaxSpare = 4;
  static constexpr size_t kMaxKept = 512;

  // Return memory for a lookup.
  std::unique_ptr<KeptLookup> NewLookup();
  // Take its memory back.
  void Recycle(std::unique_ptr<KeptLookup> lookup);
  // Make the memory that Keep takes. Throws std::bad_alloc.
  static Kept::node_type NewPlace();
  // Keep a lookup; return its ticket, which is the same on all workers.
  int64_t Keep(std::unique_ptr<KeptLookup> lookup, Kept::node_type place) noexcept;
  // Do one lookup by an exchange of its own; `bags` null: a row for each id. Return its ticket.
  int64_t LookUp(const IdView& ids, const IdFilter& filter, const BagView* bags, bool train,
                 const RowsOut& out);
  // Forget all lookups.
  void Forget();
  void ForgetLocked();  // the same, by who holds the mutex

  TableExchange* const exchange_;
  const std::shared_ptr<Table> table_;
  std::mutex mutex_;  // of all members below; locked after the exchange's
  int64_t next_ticket_ = 1;
  Kept kept_;
  std::vector<std::unique_ptr<KeptLookup>> spare_;
};

// One lookup of an operation that does several at once.
struct LookupRequest {
  ShardedTable* table = nullptr;
  IdView ids;
  IdFilter filter;
  const BagView* bags = nullptr;  // null: a row for each id
  RowsOut out = nullptr;
  int64_t ticket = 0;          // filled by a training lookup
  int64_t* handles = nullptr;  // to be filled instead: [ids.size, 2]; of an only lookup
};

// Return "table 'a'" or "tables 'a', 'b'", for messages.
std::string TableNames(const std::vector<const ShardedTable*>& tables);

// Do all n lookups by one exchange. Those of one table are done in order. Requires: all tables have
// one exchange, and there is at least one.
void LookUpOverWorkers(LookupRequest* requests, size_t n, bool train);

// Bring the gradients that these tables' lookups have got to the owners of the rows, each worker's
// times its weight in the step, by one exchange. Gradients of tables with `narrow` travel as
// bfloat16. After a failure the tables have no gradients and lookups any more; `check` may throw
// one of this worker. Requires: at least one table, each once, all of one exchange.
void ExchangeGradients(const std::vector<ShardedTable*>& tables, const std::vector<bool>& narrow,
                       const std::function<void()>& check = {});

}  // namespace msrec
