// SPDX-License-Identifier: Apache-2.0
//
// ShardedTable: one table that all workers use together. Each worker has a Table with the rows that
// it owns. Lookups send the distinct keys of a batch to their owners and receive the rows from the
// owners. For each key of the batch, the sum of the key's gradients is sent to the owner. N workers
// that each train on one batch get the same result as a single table that trains on the
// concatenated batches, except for rounding. The results of repeated runs are identical bit for
// bit.
//
// A training step works as follows. Training lookups return tickets. Accumulate adds a lookup's
// gradient. ExchangeGradients sends all tables' gradients to the owners. After the exchange, Step
// updates only this worker's rows. All workers call the methods of a step in the same order, except
// Accumulate and Step. If one worker fails, all workers throw an exception (collective.h), and no
// rows change. In a lookup, each owner first does the operations that may fail. The rows are
// changed and sent only if no owner has failed.
//
// A worker without a batch in a step (WorkerGroup::idle) takes part in the exchanges, but sends no
// keys. On an idle worker, training lookups return zeros, and gradients are dropped.
//
// ShardedTable is as thread safe as Table.
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

// A lookup. A training lookup is stored until its gradient has been sent to the owners.
struct KeptLookup {
  Batch batch;
  PackedKeys keys;     // of this worker's batch
  Buffer<float> sums;  // the gradient by packed key
  size_t grad_rows = 0;
  bool idle = false;
  bool summed = false;  // `sums` is filled
  // The following members describe the keys that this worker has received as their owner. The keys
  // from worker 0 are first.
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
  // Requires: the exchange outlives this object. `table` and `exchange` must have the same rank and
  // the same number of workers.
  ShardedTable(TableExchange* exchange, std::shared_ptr<Table> table);

  Table& table() const { return *table_; }
  const std::string& name() const { return table_->config().name; }
  const Placement& placement() const { return table_->placement(); }
  TableExchange& exchange() const { return *exchange_; }

  // LookupTrain, LookupEval, PoolTrain and PoolEval do the same as the methods of Table, but over
  // all workers.
  int64_t LookupTrain(const IdView& ids, const IdFilter& filter, const RowsOut& out);
  void LookupEval(const IdView& ids, const IdFilter& filter, const RowsOut& out);
  int64_t PoolTrain(const IdView& ids, const IdFilter& filter, const BagView& bags, float* out);
  void PoolEval(const IdView& ids, const IdFilter& filter, const BagView& bags, float* out);

  // LookupWithHandles and AccumulateByHandle do the same as the methods of Table, but do not
  // support a replicated table. Only the worker that looked up a row can use the row's handle.
  void LookupWithHandles(const IdView& ids, const IdFilter& filter, float* out, int64_t* handles);
  // If AccumulateByHandle fails, the table's lookups and gradients are dropped.
  void AccumulateByHandle(const int64_t* handles, size_t n, const float* grad);

  // Send the ids of a later batch to the owners of the rows. Each owner prefetches the rows that
  // any worker requests; see TableTiers::Prefetch. Return the number that this worker's table has
  // given to the batch. All workers call Prefetch. Requires: no operator uses the exchange `ahead`.
  int64_t Prefetch(TableExchange* ahead, const IdView& ids);

  // For each key of this worker's lookup `ticket`, add the gradients of the key's occurrences;
  // ExchangeGradients then sends the sums.
  void Accumulate(int64_t ticket, const Gradient& grad, size_t grad_rows);
  // For each key, sum the gradients of all workers. Return the sum of squares of all elements of
  // the summed gradients. Requires an earlier call of ExchangeGradients.
  double GradientSquaredNorm();
  // Update this worker's rows. Throws std::runtime_error if gradients were not exchanged.
  void Step(const StepInput& input);
  // Drop all lookups and gradients that this worker has kept since the last step.
  void DiscardGradients();

 private:
  friend class LookupExchange;
  friend class GradientExchange;

  using Kept = std::map<int64_t, std::unique_ptr<KeptLookup>>;

  // Maximum number of unused KeptLookup objects that are kept, and maximum number of lookups that
  // wait for a gradient.
  static constexpr size_t kMaxSpare = 4;
  static constexpr size_t kMaxKept = 512;

  // Return an unused KeptLookup, or a new KeptLookup if there is none.
  std::unique_ptr<KeptLookup> NewLookup();
  // Keep a KeptLookup that is no longer needed, so that NewLookup can return it.
  void Recycle(std::unique_ptr<KeptLookup> lookup);
  // Allocate the memory that Keep needs. Throws std::bad_alloc.
  static Kept::node_type NewPlace();
  // Store a lookup under a new ticket; return the ticket, which is the same on all workers.
  int64_t Keep(std::unique_ptr<KeptLookup> lookup, Kept::node_type place) noexcept;
  // Do one lookup in a separate exchange, and return the lookup's ticket. A null `bags` means one
  // row per id.
  int64_t LookUp(const IdView& ids, const IdFilter& filter, const BagView* bags, bool train,
                 const RowsOut& out);
  // Drop all lookups.
  void Forget();
  void ForgetLocked();  // the same, by who holds the mutex

  TableExchange* const exchange_;
  const std::shared_ptr<Table> table_;
  std::mutex mutex_;  // of all members below; locked after the exchange's
  int64_t next_ticket_ = 1;
  Kept kept_;
  std::vector<std::unique_ptr<KeptLookup>> spare_;
};

// One lookup of an operation with several lookups.
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

// Do all n lookups in one exchange. Lookups of the same table are done in the order of `requests`.
// Requires: all tables have the same exchange, and there is at least one lookup.
void LookUpOverWorkers(LookupRequest* requests, size_t n, bool train);

// Send the gradients of all lookups of `tables` to the owners of the rows, in one exchange. The
// gradients of each worker are multiplied by the worker's weight in the step. If a table's entry in
// `narrow` is true, the table's gradients are sent as bfloat16. If the call fails, the lookups and
// gradients of all tables in `tables` are dropped. The call fails on all workers if `check` throws
// on this worker. Requires: at least one table, each table only once, and the same exchange for all
// tables.
void ExchangeGradients(const std::vector<ShardedTable*>& tables, const std::vector<bool>& narrow,
                       const std::function<void()>& check = {});

}  // namespace msrec
