// SPDX-License-Identifier: Apache-2.0
//
// Table: int64 key -> row of floats with optimizer state, trained by batches. The facade of its
// parts: takes the lock, translates errors, and calls the parts in the right order. Calls that few
// callers need are in groups (device(), tiers(), ...), and what all of them use is TableEngine.
//
// The way of a step: a training lookup gives a ticket; Accumulate takes that lookup's gradient;
// after all lookups, Step applies one optimizer update to each key's summed gradient.
//
// Every method may be called from any thread; calls on one table run one after another, each
// parallel inside. A method that throws leaves the table as it was. Throws std::invalid_argument
// for bad arguments, TableClosed after Close, OutOfMemory when memory runs out, ForkedProcess in a
// child forked from the process that made the table; messages name the table.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "rows/batch.h"
#include "rows/exported_rows.h"
#include "table/bag_pooling.h"
#include "table/core/prepared_lookups.h"
#include "table/explanation.h"
#include "table/table_admission.h"
#include "table/table_changes.h"
#include "table/table_clock.h"
#include "table/table_device.h"
#include "table/table_engine.h"
#include "table/table_eviction.h"
#include "table/table_quantised.h"
#include "table/table_stats.h"
#include "table/table_tiers.h"

namespace msrec {

class Table {
 public:
  explicit Table(const TableConfig& config);
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  const TableConfig& config() const { return core_.config; }
  int32_t dim() const { return core_.config.dim; }
  // Return the layout of rows, which follows from the optimizer too.
  RowLayout layout();
  // Throw ForkedProcess in a forked child.
  void RequireOwnProcess() const { core_.mutex.Require(); }

  // ---- calls by what they are about, each with a header of its own. They live as the table does.

  TableDevice& device() { return device_; }
  TableTiers& tiers() { return tiers_; }
  TableClock& clock() { return clock_; }
  TableAdmission& admission() { return admission_; }
  TableEviction& eviction() { return eviction_; }
  TableChanges& changes() { return changes_; }
  TableQuantised& quantised() { return quantised_; }

  // ---- training and evaluation ----

  // Copy the rows of ids to out, [ids.size, dim], ids.stride rows apart, as the gradient is then;
  // insert, count and touch them. Returns the ticket for Accumulate. Throws NoOptimizer when none
  // is bound: a table that would never learn is an error. Rows of bfloat16 are for tables whose
  // values are bfloat16.
  int64_t LookupTrain(const IdView& ids, const IdFilter& filter, const RowsOut& out);
  // Throw what such a lookup, or one in evaluation, would throw for its ids or for want of an
  // optimizer.
  void CheckLookup(const IdView& ids, const IdFilter& filter, bool train);
  // Throw where rows are to be handed over as bfloat16 and values are not that.
  void CheckNumbers(const RowsOut& out) const;
  // Copy the rows of ids to out without any effect on the table.
  void LookupEval(const IdView& ids, const IdFilter& filter, const RowsOut& out);
  // Look up as above, and combine the rows of each bag: out is [bags.offsets.size, dim].
  int64_t PoolTrain(const IdView& ids, const IdFilter& filter, const BagView& bags, float* out);
  void PoolEval(const IdView& ids, const IdFilter& filter, const BagView& bags, float* out);

  // Add the gradient of the lookup with that ticket, [ids.size or number of bags, dim]. Gradients
  // may come in any order; one that has to wait for an earlier lookup's is copied.
  void Accumulate(int64_t ticket, const Gradient& grad, size_t grad_rows);
  // Return the sum of squares of all gradients accumulated in this step.
  double GradientSquaredNorm();
  // Update the rows by the optimizer; then evict a slice of the sweep and what is over the
  // capacity. An eviction that tiers or memory do not let through is left to a later step.
  void Step(const StepInput& input);
  // Forget lookups and gradients since the last step.
  void DiscardGradients();
  // Note the token that stands for a gradient in a graph (gradient_tokens.h). Nothing in a table
  // that is not trainable.
  void NoteToken(float token);
  // Throw std::runtime_error unless `received` is the sum of the tokens since the last step; with
  // `forget`, they are no longer expected from then on.
  void RequireTokens(float received, bool forget = false);

  // Return, for each training lookup of the last step with such lookups, the hash (HashIds) and the
  // number of its ids.
  std::vector<std::pair<uint64_t, size_t>> RecentLookups();
  // Note the ids of a training lookup for RecentLookups. A lookup over workers calls this with the
  // ids of its own worker; its lookup in this table, of keys of all workers, is not noted.
  void NoteLookup(const IdView& ids);

  // Look up as LookupTrain, but instead of a ticket return one handle an id, [ids.size, 2], for
  // AccumulateByHandle (row_handles.h). Handles are good until a row leaves the table or rows are
  // laid out anew.
  void LookupWithHandles(const IdView& ids, const IdFilter& filter, float* out, int64_t* handles);
  // Add the gradient [n, dim] of rows by handle; gradients of keys not admitted are dropped.
  // Throws StaleHandle, and then adds nothing, if a handle belongs to another table, was made up,
  // or is no longer valid.
  void AccumulateByHandle(const int64_t* handles, size_t n, const float* grad);

  // Set the rule. Existing rows keep their values; their state starts fresh unless it is of the
  // rule's kind. Returns a new, unique number for StepInput::binding: a step throws if its
  // optimizer has been replaced since then.
  int64_t BindOptimizer(const Rule& rule);
  bool has_optimizer() const { return core_.has_optimizer; }

  // ---- over workers (workers/) ----

  // A training lookup in two parts, so that workers may agree between them: PrepareLookup does all
  // that may fail and makes no visible change; FinishLookup completes the first prepared lookup
  // that is not completed, as LookupTrain, or LookupWithHandles where `handles` is not null: then
  // there is no ticket. It fails only where another thread's calls have come between and memory or
  // a tier fails as well. Requires: the table is trainable, and without a device cache.
  void PrepareLookup(const IdView& ids, const IdFilter& filter, bool by_handle,
                     PreparedLookups* prepared);
  int64_t FinishLookup(PreparedLookups* prepared, float* out, int64_t* handles);

  const Placement& placement() const { return core_.context.placement; }
  bool trainable();
  // Turn another worker's handles into handles of this worker's table (row_handles.h).
  void AdoptHandles(int64_t* handles, size_t n);
  // Throw StaleHandle where a handle is of another table, or names a worker that there is not.
  void CheckHandles(const int64_t* handles, size_t n);
  // Combines rows that are elsewhere, with values of that type. Requires: the table outlives it.
  BagPooling NewPooling(NumberType type) const {
    return BagPooling(&core_, &core_.context.kernels->RowsOf(type, NumberType::kFloat32));
  }
  // Throw as CheckLookup does for ids, those that a lookup's filter has dropped.
  void CheckIds(const IdView& ids, const IdFilter& filter) const { core_.CheckIds(ids, filter); }

  // ---- rows by key ----

  // Look up as LookupTrain where `insert`, but without an optimizer and a ticket; else as
  // LookupEval.
  void Get(const IdView& ids, const IdFilter& filter, bool insert, float* out);
  // Set the values of rows, inserting past admission. Of a key given twice the last value stays.
  //
  // With lower tiers, Put, Erase, Import and SetScores of more keys than a quarter of host memory
  // holds are done a part at a time: where one fails, the message says how many of the keys, in the
  // order given (Put: of their first occurrences), were done.
  void Put(const IdView& ids, const float* values, size_t value_rows);
  // Drop the rows of these keys; return how many there were.
  size_t Erase(const IdView& ids);
  // Set out[i] to whether ids[i] has a row.
  void Contains(const IdView& ids, bool* out);
  // Return the number of rows, having freed those that are due.
  size_t Size();
  std::vector<int64_t> Keys();
  // Return what is known of a key, whether it has a row or not.
  Explanation Explain(int64_t key);

  // ---- whole table ----

  // Return all rows.
  ExportedRows Export(bool with_state);
  // Call fn with all rows, a part at a time, for tables that are larger than memory. fn must not
  // call the table.
  void ExportParts(bool with_state, const std::function<void(ExportedRows)>& fn);
  // Return the rows of these keys, in this order; absent ones are marked.
  ExportedRows ExportKeys(const IdView& keys, bool with_state);
  // Call fn(keys, digests, n) with all rows' digests (row_digest.h), a part at a time, in no order.
  // fn must not call the table.
  using TakeDigests = std::function<void(const int64_t*, const uint64_t*, size_t)>;
  void Digests(const TakeDigests& fn);
  // Put rows; null arrays as in Shard::Import. Throws when state_width does not fit the optimizer.
  void Import(size_t n, const RowArrays& rows, int32_t state_width);
  // Put rows with fresh optimizer state. Requires: ids of int64, one after another.
  void Import(const IdView& ids, const float* values);
  // Remove all rows. If a tier fails it throws std::runtime_error: the table is empty then, and
  // the tier is cleared before it is used again. If memory runs out, all rows are still there.
  void Clear();

  // Set whether training changes the table. Where not, training lookups act as evaluation lookups,
  // and their gradients are dropped.
  void SetTrainable(bool trainable);

  TableStats Stats();
  // End the calls that wait, let the tiers go and free the rows. Where another thread closes the
  // table already, returns when that one has. In a forked child it does nothing.
  void Close();

 private:
  int64_t Lookup(const IdView& ids, const IdFilter& filter, const BagView* bags, bool train,
                 const RowsOut& out);
  // Import rows `first` and on.
  void ImportBlock(const IdView& ids, size_t first, const RowArrays& rows, int32_t state_width);
  // Make room for what a step notes about the rows it updates. Throws std::bad_alloc.
  void ReserveStep();

  TableEngine engine_;
  TableParts& core_ = engine_.core;
  TableDevice device_{&engine_};
  TableTiers tiers_{&engine_};
  TableClock clock_{&engine_};
  TableAdmission admission_{&engine_};
  TableEviction eviction_{&engine_};
  TableChanges changes_{&engine_};
  TableQuantised quantised_{&engine_};
  bool emptied_ = false;  // Close has come to its end
  std::condition_variable closing_;
};

}  // namespace msrec
