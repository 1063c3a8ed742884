// SPDX-License-Identifier: Apache-2.0
//
// Table: int64 key -> row of floats with optimizer state, trained by batches. The facade of its
// parts: takes the lock, translates errors, and calls the parts in the right order.
//
// The way of a step: a training lookup gives a ticket; Accumulate takes that lookup's gradient;
// after all lookups, Step applies one optimizer update to each key's summed gradient.
//
// Every method may be called from any thread; calls on one table run one after another, each
// parallel inside. A method that throws leaves the table as it was. Throws std::invalid_argument
// for bad arguments, TableClosed after Close, OutOfMemory when memory runs out, ForkedProcess in a
// child forked from the process that made the table; messages name the table.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rows/batch.h"
#include "rows/exported_rows.h"
#include "table/bag_pooling.h"
#include "table/batch_lookup.h"
#include "table/cache/settings.h"
#include "table/core/prepared_lookups.h"
#include "table/device_cache.h"
#include "table/evictor.h"
#include "table/explanation.h"
#include "table/row_handles.h"
#include "table/row_optimizer.h"
#include "table/row_reader.h"
#include "table/table_parts.h"
#include "table/table_stats.h"

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

  // Look up as LookupTrain, but instead of a ticket return one handle an id, [ids.size, 2], for
  // AccumulateByHandle (row_handles.h). Handles are good until a row leaves the table or rows are
  // laid out anew.
  void LookupWithHandles(const IdView& ids, const IdFilter& filter, float* out, int64_t* handles);
  // Add the gradient [n, dim] of rows by handle; those of keys that were not admitted are dropped.
  // Throws StaleHandle, and has then added nothing, where one of the handles is another table's,
  // was made up, or is no longer good.
  void AccumulateByHandle(const int64_t* handles, size_t n, const float* grad);

  // ---- device cache (table/device_cache.h) ----

  // Gives the table a device cache. `values` is [rows + 3, dim]; null where it is not shared.
  void AttachDevice(const DeviceConfig& config, float* values);
  // The states' matrix, after BindOptimizer; null where it is not shared.
  void SetDeviceStates(float* states);
  // Like LookupTrain, but gives the slot of each id's row in the cache, where all of them are then.
  // Those that Prepare has mapped for the same ids are given out as they are; without shared memory
  // there must be such. `values`: where the cache is by now; null for where it was.
  int64_t LookupSlots(const IdView& ids, const IdFilter& filter, float* values, int32_t* slots);
  // Does that lookup's work on the host ahead of it. Without shared memory the caller then moves
  // the rows and says so by FinishMove before it does anything else with the table.
  RowMoves Prepare(const IdView& ids, const IdFilter& filter);
  // Returns the changed rows on the device, which the caller fetches and passes to FinishMove. With
  // shared memory it writes them back by itself and returns nothing.
  RowMoves FetchDirty();
  // values, states: how many numbers there are; throws std::invalid_argument, and nothing is taken
  // over, unless they are those of the rows being moved.
  void FinishMove(const float* out_values, size_t values, const float* out_states, size_t states);
  // Slots whose rows have a gradient; without shared memory.
  size_t CountTouched();
  void Touched(int32_t* slots, size_t room);
  // The gradient of the lookup with that ticket has been added on the device.
  void ReportGradient(int64_t ticket);
  // Returns adam_lr and adam_eps, which the step's formula needs besides the rule's constants.
  std::array<float, 2> BeginDeviceStep(const StepInput& input);
  // The touched rows have been updated on the device.
  void FinishDeviceStep();
  int32_t device_state_width();

  // Set the rule. Rows that exist keep values; their state starts fresh unless the rule's kind is
  // the one they have. Returns a number unlike any before, for StepInput::binding: the step of an
  // optimizer that was replaced since then throws.
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
  // Make another worker's handles those of this worker's table (row_handles.h).
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

  // ---- whole table ----

  // Return all rows.
  ExportedRows Export(bool with_state);
  // Call fn with all rows, a part at a time, for tables that are larger than memory. fn must not
  // call the table.
  void ExportParts(bool with_state, const std::function<void(ExportedRows)>& fn);
  // Return the rows of these keys, in this order; absent ones are marked.
  ExportedRows ExportKeys(const IdView& keys, bool with_state);
  // Start recording changes, if nobody has, and return a mark for ExportSince.
  uint64_t Mark();
  // Return the keys that changed since the mark, with their rows, or marked absent. Without sweep,
  // rows that are due but not freed yet are not among them: whoever has clock and rules can tell
  // which.
  ExportedRows ExportSince(uint64_t mark, bool with_state, bool sweep = true);
  // Call fn(keys, digests, n) with all rows' digests (row_digest.h), a part at a time, in no order.
  // fn must not call the table.
  using TakeDigests = std::function<void(const int64_t*, const uint64_t*, size_t)>;
  void Digests(const TakeDigests& fn);
  // Keep the digest of all rows as they change, for KeptDigest, until nobody records changes.
  // Reads the rows below host memory and hashes all, once. It ends where memory for it runs out,
  // where a table of a vocabulary is cleared, where a limit of age is turned on or off, where a
  // damaged row in a lower tier is replaced, and where a mark is taken while a row's newest value
  // is out of the host's reach; ask anew after the next mark.
  // Requires a mark. Throws as reading the rows does, and keeps none then.
  void KeepDigest();
  // Return the digest that is kept, the same that the sum over Digests is; nothing without one.
  // Throws std::runtime_error where a row's newest value is out of the host's reach.
  std::optional<uint64_t> KeptDigest();
  // Return the keys of rows whose values have changed in memory though nothing changed them since
  // the last mark. Looks at one of `parts` parts of the places of rows. Throws where no digest is
  // kept.
  std::vector<int64_t> DamagedRows(uint32_t part, uint32_t parts);
  // Drop what was recorded before the mark; 0 stops recording.
  void ReleaseBefore(uint64_t mark);
  // Return what is known of keys without rows: exact counters as metadata, or the sketch's memory.
  std::vector<RowMeta> ExportCounters();
  std::vector<char> ExportSketch();
  // Set counters, all at once or, where memory runs out, some of them. Those of keys with a row
  // are passed over. Throws where the table does not count so, or a sketch has another size.
  void ImportCounters(const std::vector<RowMeta>& counters);
  void ImportSketch(const char* data, size_t bytes);
  // Put rows; null arrays as in Shard::Import. Throws when state_width does not fit the optimizer.
  void Import(size_t n, const RowArrays& rows, int32_t state_width);
  // Put rows with fresh optimizer state. Requires: ids of int64, one after another.
  void Import(const IdView& ids, const float* values);
  // Remove all rows. If a tier fails it throws std::runtime_error: the table is empty then, and
  // the tier is cleared before it is used again. If memory runs out, all rows are still there.
  void Clear();

  // ---- admission and eviction

  void SetAdmissionThreshold(int64_t threshold);
  // Set how rows are evicted; rows due under the settings before go first. The order cannot change
  // to or from one that keeps a score.
  void SetEviction(const Eviction& eviction);
  // Move the horizon to the clock and apply all rules: in slices of the following steps, or at
  // once. If that throws, the eviction was triggered, and the following steps do the rest.
  void Evict(bool at_once);
  // Free the rows that are due already.
  void EvictAll();
  // Set scores for the order of eviction by score; unknown keys are passed over. Returns the number
  // of keys that have one now.
  size_t SetScores(const IdView& keys, const float* scores);
  // Set the event time of the batch to come, whole seconds >= 1. Older than the watermark: no
  // effect.
  void SetEventTime(int64_t seconds);
  // Put the clock to a moment, the past included. With Eviction::on_trigger the horizon stays
  // where it is, unless it would be ahead of the clock.
  void SetClock(int64_t step, uint32_t time);
  Horizon horizon();
  // Put the horizon to where the last trigger left it; not ahead of the clock.
  void SetHorizon(const Horizon& horizon);
  int64_t step();
  uint32_t time();
  // Return the first event time there was, which rows from before it have; 0: there was none.
  uint32_t first_time();
  // Start or end the collection of evicted keys.
  void CollectEvicted(bool on);
  // Return what was collected since the last call.
  std::vector<EvictedKey> TakeEvicted();
  // Return what is known of a key, whether it has a row or not.
  Explanation Explain(int64_t key);

  // ---- tiers below host memory (table/cache/)

  // Give the table tiers. Requires: no row was ever in it. Throws std::invalid_argument.
  void SetCache(CacheSettings settings);
  bool has_cache() const { return core_.context.tiered; }
  // Ask for the rows of a batch that is to be looked up soon, and return at once with its number.
  // Its rows stay in host memory until the batch is released.
  int64_t Prefetch(const IdView& ids);
  // Wait until they are there; return the seconds waited. Throws what went wrong, and the batch is
  // released.
  double PrefetchWait(int64_t number);
  // Release that batch and those before it: they have been used.
  void PrefetchDone(int64_t number);
  // Write every row to the tiers; when it returns, all survive kill -9, where the tiers do that.
  void Flush();
  // Go on with a walk over the records of all tiers, which reads and checks each once a round:
  // about `most` of them, 1 or more. Returns how many were read, and whether they were the last.
  // Throws RowDamaged, which names tier and key, and then begins anew; or what a tier throws.
  std::pair<size_t, bool> ScrubTiers(size_t most);
  // Return hashes (HashIds) and sizes of the ids of the training lookups of the last step that had
  // one.
  std::vector<std::pair<uint64_t, size_t>> RecentLookups();
  // Note the ids of a training lookup for RecentLookups. Lookups of a table over workers do not do
  // it by themselves: what they look up here comes from all workers.
  void NoteLookup(const IdView& ids);

  // ---- rows of int8 and int4 (readers/)

  // Keep rows with 8 or 4 bits a number from now on: they are quantised as they are put or
  // imported. Such rows are looked up, put, imported, erased and exported as others; they have no
  // optimizer and are not inserted by lookups. Rows of a static table become first values.
  // Requires: the table has no rows otherwise, no optimizer, no tiers, no device cache, and is not
  // over workers.
  void Quantise(int32_t bits);
  // Set rows that are quantised already: of each `width` bytes of scale, offset and codes
  // (quantised_row.h), as many as the table's rows have, which are of int8 or int4. Null columns of
  // `ages` are zeros.
  void ImportCodes(const IdView& keys, const uint8_t* rows, size_t width, const RowArrays& ages);
  // 8 or 4; 0 where rows are not quantised.
  int32_t quantised_bits();

  // Set whether training changes the table. Where not, training lookups act as evaluation lookups,
  // and their gradients are dropped.
  void SetTrainable(bool trainable);

  TableStats Stats();
  // End the calls that wait, let the tiers go and free the rows. Where another thread closes the
  // table already, returns when that one has. In a forked child it does nothing.
  void Close();

 private:
  class Guard;
  class CallScope;

  int64_t Lookup(const IdView& ids, const IdFilter& filter, const BagView* bags, bool train,
                 const RowsOut& out);
  // Throw where rows are quantised.
  void RefuseQuantised(const char* what) const;
  // Have every shard keep its digest, computed anew.
  void RenewDigest();
  // Whether a digest is kept. Brings rows in host memory up to date, if so.
  bool DigestIsReady();
  // Bring rows in host memory up to date before an epoch ends, if a digest is kept; drop it where
  // that cannot be.
  void WriteBackForDigest() noexcept;
  // Requires quantised rows, as the next three do. Null bags: each row by itself.
  void LookUpQuantised(const IdView& ids, const IdFilter& filter, const BagView* bags,
                       const float* unknown, const RowsOut& out) const;
  ExportedRows ExportQuantised(const IdView& keys, bool with_state) const;
  void ExportQuantisedParts(bool with_state, const std::function<void(ExportedRows)>& fn) const;
  // Quantise values; null columns of `ages` are zeros.
  void PutQuantised(const IdView& keys, const float* values, const RowArrays& ages);
  // Bytes of a row that are no numbers.
  size_t MetadataBytes() const;
  // Return the age limits that rows have now.
  AgeLimit Ages() const;
  void WriteFirstRows(QuantisedRows* rows) const;
  // Forget the lookups and gradients of the step.
  void ForgetStep();
  // Do what follows the update of rows: the clock, and one step's share of evicting.
  void FinishStep();
  // Import rows `first` and on.
  void ImportBlock(const IdView& ids, size_t first, const RowArrays& rows, int32_t state_width);
  // Call fn(ids, first) with all ids, in parts where there are lower tiers: all rows would need
  // more memory than the host may take. Each part is done as a whole, or not at all; where one
  // fails, the message says how far it came.
  void ForEachPart(const IdView& ids, const char* what, const char* done,
                   const std::function<void(const IdView&, size_t)>& fn);
  // Throw where the table never prefetched.
  void RequirePrefetched(int64_t number) const;
  TierStatistics StatsOfTiers() const;

  // Make room for what a step notes about the rows it updates. Throws std::bad_alloc.
  void ReserveStep();
  // Throw where there is no device cache, or one whose memory is not shared, or is.
  DeviceCache& Device() const;
  DeviceCache& Device(bool shared) const;

  TableParts core_;
  BatchLookup lookup_{&core_};
  RowReader reader_{&core_};
  BagPooling pooling_{&core_};
  RowOptimizer optimizer_{&core_};
  RowHandles handles_{&core_};
  Evictor evictor_{&core_, &reader_};
  bool emptied_ = false;  // Close has come to its end
  std::condition_variable closing_;
  std::unique_ptr<DeviceCache> device_;  // null: there is none
};

}  // namespace msrec
