// SPDX-License-Identifier: Apache-2.0
//
// Table maps each int64 key to a row, which contains floats and optimizer state. Rows are trained
// by batches. Table is a facade: it locks the table's mutex, translates errors, and calls the parts
// of the table in the right order. Methods that few callers need are in separate classes
// (TableDevice, TableTiers, ...), which device(), tiers() and similar methods return. TableEngine
// contains the code that Table, TableDevice, TableTiers, ... share.
//
// A training step works as follows. A training lookup returns a ticket. Accumulate takes a ticket
// and adds the gradient of the ticket's lookup. After all lookups, Step applies one optimizer
// update to each key's summed gradient.
//
// Any thread may call any method. Calls on one table run one after another, and each call uses
// several threads. If a method throws, the table is unchanged, unless the method's comment states
// another result. Throws std::invalid_argument for bad arguments, TableClosed after Close, and
// OutOfMemory if memory runs out. Throws ForkedProcess in a forked child of the process that
// created the table. Messages name the table.
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
  // Return the layout of rows. The layout also depends on the optimizer.
  RowLayout layout();
  // Throw ForkedProcess in a forked child.
  void RequireOwnProcess() const { core_.mutex.Require(); }

  // ---- groups of methods, by subject; each group has a separate header. A returned reference is
  // valid as long as the table exists.

  TableDevice& device() { return device_; }
  TableTiers& tiers() { return tiers_; }
  TableClock& clock() { return clock_; }
  TableAdmission& admission() { return admission_; }
  TableEviction& eviction() { return eviction_; }
  TableChanges& changes() { return changes_; }
  TableQuantised& quantised() { return quantised_; }

  // ---- training and evaluation ----

  // Copy the rows of `ids` to `out` [ids.size, dim]. The rows of two consecutive ids are ids.stride
  // rows apart, in `out` and in the gradient. Insert, count and touch the rows. Returns a ticket;
  // pass the ticket and the gradient to Accumulate. Throws NoOptimizer if no optimizer is bound,
  // because a table without an optimizer would never be trained. A bfloat16 output requires a table
  // with bfloat16 values.
  int64_t LookupTrain(const IdView& ids, const IdFilter& filter, const RowsOut& out);
  // Throw the exception that a lookup would throw because of bad ids or a missing optimizer.
  // `train` is true for a training lookup, and false for an evaluation lookup.
  void CheckLookup(const IdView& ids, const IdFilter& filter, bool train);
  // Throw if rows are requested as bfloat16, but the table's values are not bfloat16.
  void CheckNumbers(const RowsOut& out) const;
  // Copy the rows of `ids` to `out`. The table does not change.
  void LookupEval(const IdView& ids, const IdFilter& filter, const RowsOut& out);
  // Look up rows as LookupTrain or LookupEval does, and combine the rows of each bag. `out` is
  // [bags.offsets.size, dim].
  int64_t PoolTrain(const IdView& ids, const IdFilter& filter, const BagView& bags, float* out);
  void PoolEval(const IdView& ids, const IdFilter& filter, const BagView& bags, float* out);

  // Add the gradient [ids.size or number of bags, dim] of lookup `ticket`. Gradients may arrive in
  // any order. A gradient that must wait for an earlier lookup's gradient is copied. Throws
  // std::runtime_error if the ticket is unknown, for example after a step.
  void Accumulate(int64_t ticket, const Gradient& grad, size_t grad_rows);
  // For each key, add up the gradients of this step. Return the sum of squares of all elements of
  // the summed gradients.
  double GradientSquaredNorm();
  // Update the rows by the optimizer. After the update, visit one slice of the table and evict the
  // slice's rows that are due for eviction; also evict rows over the capacity. If a tier fails or
  // memory runs out during an eviction, a later step does the eviction.
  void Step(const StepInput& input);
  // Drop the lookups and gradients since the last step.
  void DiscardGradients();
  // Record the token of a computed gradient (gradient_tokens.h). Does nothing in a table that is
  // not trainable.
  void NoteToken(float token);
  // Throw std::runtime_error unless `received` is the sum of the recorded tokens. If `forget` is
  // true, the tokens are cleared after the check.
  void RequireTokens(float received, bool forget = false);

  // Find the last step with training lookups. For each training lookup of the step, return the hash
  // (HashIds) of the ids and the number of ids. If the table has no lower tiers, the result is
  // empty.
  std::vector<std::pair<uint64_t, size_t>> RecentLookups();
  // Record the ids of a training lookup. RecentLookups reads these records. A lookup over several
  // workers calls NoteLookup with this worker's ids. Keys that other workers look up in this table
  // are not recorded.
  void NoteLookup(const IdView& ids);

  // Look up rows as LookupTrain does, but write one handle per id to `handles` [ids.size, 2], and
  // return no ticket. The caller passes the handles (row_handles.h) to AccumulateByHandle. Handles
  // are valid until a row leaves the table or rows get another layout. In a table with lower tiers,
  // handles are valid for one step only.
  void LookupWithHandles(const IdView& ids, const IdFilter& filter, float* out, int64_t* handles);
  // Add the gradient [n, dim] of the rows that the handles identify. Gradients of keys that are not
  // admitted are dropped. Throws StaleHandle if a handle is from another table, is forged, or is no
  // longer valid; after an exception, nothing has been added.
  void AccumulateByHandle(const int64_t* handles, size_t n, const float* grad);

  // Set the update rule of the optimizer. Existing rows keep their values. If the new rule has
  // another kind or another number of states than the old rule, the optimizer state of existing
  // rows is initialized again. Returns a unique number, which the caller passes to Step as
  // StepInput::binding. Step throws if another optimizer was bound after BindOptimizer returned
  // StepInput::binding.
  int64_t BindOptimizer(const Rule& rule);
  bool has_optimizer() const { return core_.has_optimizer; }

  // ---- over workers (workers/) ----

  // PrepareLookup and FinishLookup are the two parts of a training lookup. Between the parts, the
  // workers check that no worker has failed. PrepareLookup does all operations that may fail, and
  // makes no visible change. FinishLookup completes the first prepared lookup; the result is the
  // same as for LookupTrain. If `handles` is not null, FinishLookup also writes the handles, as
  // LookupWithHandles does, and keeps no ticket. FinishLookup fails only if other threads have used
  // the table since PrepareLookup and, in addition, memory runs out or a tier fails. Requires: the
  // table is trainable and has no device cache.
  void PrepareLookup(const IdView& ids, const IdFilter& filter, bool by_handle,
                     PreparedLookups* prepared);
  int64_t FinishLookup(PreparedLookups* prepared, float* out, int64_t* handles);

  const Placement& placement() const { return core_.context.placement; }
  bool trainable();
  // Turn another worker's handles into handles of this worker's table (row_handles.h).
  void AdoptHandles(int64_t* handles, size_t n);
  // Throw StaleHandle if a handle is from another table, or if it contains the index of a worker
  // that does not exist.
  void CheckHandles(const int64_t* handles, size_t n);
  // Return a BagPooling for rows that are not in this table and that have values of type `type`.
  // The table must outlive the BagPooling.
  BagPooling NewPooling(NumberType type) const {
    return BagPooling(&core_, &core_.context.kernels->RowsOf(type, NumberType::kFloat32));
  }
  // Throw the exceptions that CheckLookup throws for bad ids. `ids` may be all ids of a lookup, or
  // only the ids that the lookup's filter has dropped.
  void CheckIds(const IdView& ids, const IdFilter& filter) const { core_.CheckIds(ids, filter); }

  // ---- rows by key ----

  // If `insert` is true and the table is trainable, look up rows as LookupTrain does, but without
  // an optimizer and without a ticket. If `insert` is false or the table is not trainable, look up
  // rows as LookupEval does.
  void Get(const IdView& ids, const IdFilter& filter, bool insert, float* out);
  // Set the values of rows, and insert missing rows without admission. If a key occurs several
  // times, the last value is stored.
  //
  // If the table has lower tiers, large calls of Put, Erase, Import and SetScores are split into
  // parts. A call is large if its number of keys exceeds a quarter of the number of rows that fit
  // into host memory. If a part fails, the completed parts stay done, and the message contains the
  // number of completed keys. Keys are processed in the order of the argument; Put processes
  // repeated keys in the order of their first occurrences.
  void Put(const IdView& ids, const float* values, size_t value_rows);
  // Drop the rows of the keys `ids`; return the number of dropped rows.
  size_t Erase(const IdView& ids);
  // Set out[i] to true if ids[i] has a row.
  void Contains(const IdView& ids, bool* out);
  // Free the rows that are due for eviction, and return the number of remaining rows.
  size_t Size();
  std::vector<int64_t> Keys();
  // Return the facts that explain why a key has a row or no row. The key need not have a row.
  Explanation Explain(int64_t key);

  // ---- whole table ----

  // Return all rows.
  ExportedRows Export(bool with_state);
  // Call fn with all rows, one part at a time, so that the table may be larger than memory. The
  // function fn must not call the table.
  void ExportParts(bool with_state, const std::function<void(ExportedRows)>& fn);
  // Return the rows of `keys`, in the order of `keys`; absent keys are marked.
  ExportedRows ExportKeys(const IdView& keys, bool with_state);
  // Call fn(keys, digests, n) with the digests (row_digest.h) of all rows, one part at a time, in
  // no fixed order. The function fn must not call the table.
  using TakeDigests = std::function<void(const int64_t*, const uint64_t*, size_t)>;
  void Digests(const TakeDigests& fn);
  // Put rows. Shard::Import states the meaning of a null array in `rows`. Throws if `rows` has
  // optimizer states and state_width does not match the optimizer.
  void Import(size_t n, const RowArrays& rows, int32_t state_width);
  // Put rows, and initialize their optimizer states as for new rows. Requires: ids are int64 and
  // contiguous.
  void Import(const IdView& ids, const float* values);
  // Remove all rows. If a tier fails, Clear throws std::runtime_error. All rows remain if memory
  // runs out, if a tier cannot be opened, or if a tier fails while Clear reads the tier's keys to
  // record changes. If a tier fails later in Clear, the table is empty, and the failed tier is
  // cleared before it is used again.
  void Clear();

  // Set whether training changes the table. In a table that is not trainable, training lookups act
  // like evaluation lookups, and gradients are dropped.
  void SetTrainable(bool trainable);

  TableStats Stats();
  // Make waiting calls return, release the tiers and free the rows. If another thread is already
  // closing the table, Close waits for that thread. In a forked child, Close does nothing.
  void Close();

 private:
  int64_t Lookup(const IdView& ids, const IdFilter& filter, const BagView* bags, bool train,
                 const RowsOut& out);
  // Import the rows, beginning with row `first`.
  void ImportBlock(const IdView& ids, size_t first, const RowArrays& rows, int32_t state_width);
  // Reserve memory to record the rows that a step updates. Throws std::bad_alloc.
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
