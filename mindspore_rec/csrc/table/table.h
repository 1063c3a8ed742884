// SPDX-License-Identifier: Apache-2.0
//
// Table: int64 key -> row of floats with optimizer state, trained by batches.
//
// The way of a step: Lookup (unique | fetch rows | expand) gives a ticket; Accumulate hands back
// that lookup's gradient; after all lookups, Step applies one optimizer update to each key's summed
// gradient.
//
// Every method may be called from any thread; calls on one table run one after another, each
// parallel inside. A method that throws leaves the table as it was. Throws std::invalid_argument
// for bad arguments, TableClosed after Close, OutOfMemory when memory runs out, ForkedProcess in a
// child forked from the process that made the table; messages name the table.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "device/device_cache.h"
#include "table/batch.h"
#include "table/below.h"
#include "table/gradient_sum.h"
#include "table/shard.h"
#include "table/table_core.h"
#include "table/table_stats.h"
#include "util/siphash.h"

namespace msrec {

enum class Combiner : int32_t { kSum = 0, kMean = 1, kSqrtN = 2 };

// Bags of a pooled lookup: bag b holds ids [offset[b], offset[b + 1]), the last one up to the end.
struct BagView {
  IdView offsets;
  const float* weights = nullptr;  // one an id, or null for 1
  Combiner combiner = Combiner::kSum;
};

// Rows that left a table. state_width is 0 where they were exported without state.
struct ExportedRows {
  size_t n = 0;
  int32_t dim = 0;
  int32_t state_width = 0;
  std::unique_ptr<int64_t[]> keys;
  std::unique_ptr<float[]> values;
  std::unique_ptr<float[]> states;
  std::unique_ptr<uint32_t[]> counts;
  std::unique_ptr<uint32_t[]> last_steps;
  std::unique_ptr<uint32_t[]> last_times;
  std::unique_ptr<bool[]> present;  // false: the key is deleted and its other entries are zero
};

// What is known of a key.
struct Explanation {
  bool present = false;
  bool trained = true;     // of the table: whether training changes it
  uint32_t count = 0;      // of the row, or of the candidate: an estimate where there is a sketch
  int64_t last_step = -1;  // -1 where there is no row
  int64_t last_time = -1;  // the same
  double norm = 0.0;       // L2, of the value
  double standing = 0.0;   // frequency or score, where the table keeps one
  EvictedKey evicted;      // its last eviction, if that is remembered
  Admission admission;
  Eviction eviction;
  int64_t step = 0;  // the table's clock
  uint32_t time = 0;
};

class Table {
 public:
  explicit Table(const TableConfig& config);
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  const TableConfig& config() const { return core_.config; }
  int32_t dim() const { return core_.config.dim; }
  // Throws ForkedProcess in a forked child.
  void RequireOwnProcess() const { core_.mutex.Require(); }

  // ---- training and evaluation ----

  // out is [ids.size, dim], its rows ids.stride rows apart, as is the gradient then. Inserts,
  // counts and touches. Throws NoOptimizer when none is bound: a table that would never learn is an
  // error.
  int64_t LookupTrain(const IdView& ids, const IdFilter& filter, float* out);
  // Throws what such a lookup, or one in evaluation, would throw for its ids or for want of an
  // optimizer.
  void CheckLookup(const IdView& ids, const IdFilter& filter, bool train);
  // The same without any effect on the table.
  void LookupEval(const IdView& ids, const IdFilter& filter, float* out);
  // out is [bags.offsets.size, dim]: each bag's rows combined.
  int64_t PoolTrain(const IdView& ids, const IdFilter& filter, const BagView& bags, float* out);
  void PoolEval(const IdView& ids, const IdFilter& filter, const BagView& bags, float* out);

  // The gradient of the lookup with that ticket, [ids.size or number of bags, dim]. Lookups may
  // report in any order; grad is copied where it has to wait for an earlier one.
  void Accumulate(int64_t ticket, const float* grad, size_t grad_rows);
  // Sum of squares of all gradients accumulated so far.
  double GradientSquaredNorm();
  // One optimizer update; then a slice of the eviction sweep and what is over the capacity. An
  // eviction that tiers or memory do not let through is left to a later step.
  void Step(const StepInput& input);
  // Forgets lookups and gradients since the last step.
  void DiscardGradients();

  // Like LookupTrain, but instead of a ticket gives one handle an id, [ids.size, 2], for
  // AccumulateByHandle. Handles are good until a row leaves the table or rows are laid out anew.
  void LookupWithHandles(const IdView& ids, const IdFilter& filter, float* out, int64_t* handles);
  // The gradient [n, dim] of rows by handle; those of keys that were not admitted are dropped.
  // Throws StaleHandle, and has then added nothing, where one of the handles is another table's,
  // was made up, or is no longer good.
  void AccumulateByHandle(const int64_t* handles, size_t n, const float* grad);

  // ---- device cache (device/device_cache.h) ----

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
  // What is only on the device, to be fetched by the caller and handed to FinishMove. With shared
  // memory it does all by itself and returns nothing.
  RowMoves FetchDirty();
  // values, states: how many numbers there are; throws std::invalid_argument, and nothing is taken
  // over, unless they are those of the rows being moved.
  void FinishMove(const float* out_values, size_t values, const float* out_states, size_t states);
  // Slots whose rows have a gradient; without shared memory.
  size_t CountTouched();
  void Touched(int32_t* slots, size_t room);
  // The gradient of the lookup with that ticket has been added on the device.
  void ReportGradient(int64_t ticket);
  // What the step's formula needs beside the rule's constants: adam_lr, adam_eps.
  std::array<float, 2> BeginDeviceStep(const StepInput& input);
  // The touched rows have been updated on the device.
  void FinishDeviceStep();
  int32_t device_state_width();

  // Sets the rule. Rows that exist keep values; their state starts fresh unless the rule's kind is
  // the one they have. Returns a number unlike any before, for StepInput::binding: the step of an
  // optimizer that was replaced since then throws.
  int64_t BindOptimizer(const Rule& rule);
  bool has_optimizer() const { return core_.has_optimizer; }

  // ---- rows by key ----

  // Like LookupTrain where `insert`, but needs no optimizer and is not trained; else like
  // LookupEval.
  void Get(const IdView& ids, const IdFilter& filter, bool insert, float* out);
  // With tiers below, Put, Erase, Import and SetScores of more keys than a quarter of host memory
  // holds are done a part at a time: where one fails, the message says how many of the keys, in the
  // order given (Put: of their first occurrences), were done.
  void Put(const IdView& ids, const float* values, size_t value_rows);
  size_t Erase(const IdView& ids);
  void Contains(const IdView& ids, bool* out);
  size_t Size();
  std::vector<int64_t> Keys();

  // ---- whole table ----

  ExportedRows Export(bool with_state);
  // The same a part at a time, for tables that are larger than memory. fn must not call the table.
  void ExportParts(bool with_state, const std::function<void(ExportedRows)>& fn);
  // The rows of these keys, in this order; absent ones are marked.
  ExportedRows ExportKeys(const IdView& keys, bool with_state);
  // Starts recording changes, if nobody has, and returns a mark for ExportSince.
  uint64_t Mark();
  // Keys that changed since the mark, with their rows, or marked absent. Without sweep, rows that
  // are due but not freed yet are not among them: whoever has clock and rules can tell which.
  ExportedRows ExportSince(uint64_t mark, bool with_state, bool sweep = true);
  // Drops what was recorded before the mark; 0 stops recording.
  void ReleaseBefore(uint64_t mark);
  // What is known of keys without rows: exact counters as metadata, or the sketch's memory.
  std::vector<RowMeta> ExportCounters();
  std::vector<char> ExportSketch();
  // Sets counters, all at once or, where memory runs out, some of them. Those of keys with a row
  // are passed over. Throws where the table does not count so, or a sketch has another size.
  void ImportCounters(const std::vector<RowMeta>& counters);
  void ImportSketch(const char* data, size_t bytes);
  // Puts rows; null arrays as in Shard::Import. Throws when state_width does not fit the optimizer.
  void Import(size_t n, const RowArrays& rows, int32_t state_width);
  // Removes all rows. If a tier fails it throws std::runtime_error: the table is empty then, and
  // the tier is cleared before it is used again. If memory runs out, all rows are still there.
  void Clear();

  // ---- admission and eviction

  void SetAdmissionThreshold(int64_t threshold);
  // A new way of evicting; rows due under the old one go first. The order cannot change to or from
  // one that keeps a score.
  void SetEviction(const Eviction& eviction);
  // Moves the horizon to now and applies all rules: in slices of the following steps, or at once.
  // If that throws, the eviction was triggered, and the following steps do the rest.
  void Evict(bool at_once);
  // Frees the rows that are due already.
  void EvictAll();
  // Scores for the order of eviction by score; unknown keys are passed over. Returns how many have
  // one.
  size_t SetScores(const IdView& keys, const float* scores);
  // Event time of the batch to come, whole seconds >= 1. Older than the watermark: no effect.
  void SetEventTime(int64_t seconds);
  // Puts the clock to a moment, the past included. With Eviction::on_trigger the horizon stays
  // where it is, unless it would be ahead of the clock.
  void SetClock(int64_t step, uint32_t time);
  Horizon horizon();
  // Where the last trigger left the horizon; not ahead of the clock.
  void SetHorizon(const Horizon& horizon);
  int64_t step();
  uint32_t time();
  // The first event time there was, which rows from before it have; 0: there was none.
  uint32_t first_time();
  // Starts or ends the collection of evicted keys; what was collected since the last call.
  void CollectEvicted(bool on);
  std::vector<EvictedKey> TakeEvicted();
  Explanation Explain(int64_t key);

  // ---- tiers below host memory (below.h)

  // Gives the table tiers. Requires: no row was ever in it. Throws std::invalid_argument.
  void SetCache(CacheSettings settings);
  bool has_cache() const { return core_.context.tiered; }
  // Asks for the rows of a batch that is to be looked up soon, and returns at once with its number.
  // Its rows stay in host memory until the batch is released.
  int64_t Prefetch(const IdView& ids);
  // Waits until they are there; seconds waited. Throws what went wrong, and the batch is released.
  double PrefetchWait(int64_t number);
  // That batch and those before it have been used.
  void PrefetchDone(int64_t number);
  // When it returns, every row is in the lowest tiers and survives kill -9, where they do.
  void Flush();
  // Hashes (HashIds) and sizes of what the training lookups of the last step that had one asked
  // for.
  std::vector<std::pair<uint64_t, size_t>> RecentLookups();

  // A table that is not trainable is only read: training lookups act as evaluation lookups, and
  // their gradients are dropped.
  void SetTrainable(bool trainable);

  TableStats Stats();
  // Ends the calls that wait, lets the tiers go and frees the rows. Where another thread closes the
  // table already, returns when that one has. In a forked child it does nothing.
  void Close();

 private:
  class Guard;

  void Resolve(Batch* batch, void (Shard::*find)(Batch*), const float* unknown, float* out);
  int64_t Lookup(const IdView& ids, const IdFilter& filter, const BagView* bags, bool train,
                 float* out);
  void ReservePool(Batch* batch, const BagView& bags);
  void Pool(Batch* batch, const IdView& ids, const BagView& bags, const float* unknown, float* out);
  uint64_t HandleVersion() const;
  void CheckBags(const IdView& ids, const BagView& bags) const;
  // The clock has moved.
  void FollowClock();
  // One step's share of evicting.
  void EvictSome();
  int64_t Capacity() const;
  void EvictOverCapacity(uint64_t most);
  // What the shards offer for that many rows to go, in no order, and the first of it.
  std::vector<Offer> Offers(uint64_t wanted,
                            const std::function<void(Shard*, size_t, std::vector<Offer>*)>& offer);
  static void KeepFirst(uint64_t most, std::vector<Offer>* offers);
  // Frees what is due, so that it is not among the rows.
  void SweepDue();
  void ReserveStep();
  // Throws where an argument of the step is out of range.
  StepConstants Constants(const StepInput& input) const;
  // What follows the update of rows.
  void FinishStep();
  // Throw where there is no device cache, or one whose memory is not shared, or is.
  DeviceCache& Device() const;
  DeviceCache& Device(bool shared) const;
  void ForgetStep();
  using KeyedRows = std::vector<std::pair<int64_t, const char*>>;
  ExportedRows NewExport(size_t n, bool with_state) const;
  void Pack(const KeyedRows& rows, size_t from, ExportedRows* to) const;
  void ImportBlock(const IdView& ids, size_t first, const RowArrays& rows, int32_t state_width);

  // table_tiers.cc
  class CallPins;
  // Runs a call on a tier; what it throws gets the table's name.
  template <typename Fn>
  auto OnTier(Fn fn);
  WriteBehind& Queue();
  std::shared_ptr<TierChain> OpenChain(int generation, size_t row_bytes);
  void PushErased();
  // Keys whose rows below have changed.
  void Overtake(const std::vector<int64_t>& keys);
  // Which keys are below, and, unless that is null, their rows.
  void ReadBelow(const std::vector<int64_t>& keys, std::vector<char>* rows,
                 std::unique_ptr<bool[]>* found);
  int64_t HostCapacity() const;
  size_t LowerSome(size_t rows, bool prefetched);
  size_t MakeRoom(size_t rows, bool prefetching);
  enum class Purpose { kRead, kChange, kReplace };  // replace: all of the row, so it is not read
  void BringUp(Batch* batch, Purpose purpose);
  void Visit(Batch* batch, const std::vector<uint32_t>* missing, const std::vector<uint32_t>& at,
             const std::vector<char>& rows, const bool* found);
  // The rows of these keys as evaluation sees them, wherever they are.
  KeyedRows RowsOf(const IdView& keys, std::vector<char>* visitors);
  // table_below.cc
  void DrainIfPossible();
  template <typename Fn>
  void WalkBelow(Fn fn);
  // All rows that are not due, a part at a time. Requires that the shards have been swept.
  void WalkAll(const std::function<void(const KeyedRows&)>& fn);
  bool SweepBelow(size_t rows, bool norms);
  void SweepAllBelow(bool norms);
  void SweepSomeBelow();
  uint64_t CrowdBelow(uint64_t drops);
  size_t DropBelow(const std::vector<int64_t>& keys,
                   const std::function<EvictionReason(const char*)>& reason);
  // The rows below in another layout.
  struct Relaid {
    std::shared_ptr<TierChain> chain;  // null: no tier was ever opened
    std::shared_ptr<WriteBehind> queue;
    int64_t rows = 0;
    std::vector<int64_t> keys;  // where changes are recorded
  };
  Relaid RelayBelow(const RowLayout& layout);
  std::shared_ptr<WriteBehind> SwitchLayout(const RowLayout& layout,
                                            std::vector<std::unique_ptr<SlabStore>>* stores,
                                            Relaid below) noexcept;
  std::shared_ptr<WriteBehind> AdoptBelow(Relaid relaid) noexcept;
  void DropStale(std::shared_ptr<WriteBehind> queue);
  void DrainStale();
  void NoteVocabulary();
  void ClearBelow();
  void ForEachBlock(const IdView& ids, const char* what, const char* done,
                    const std::function<void(const IdView&, size_t)>& fn);
  size_t AllRows() const;
  TierStatistics StatsOfTiers() const;
  bool KnownAbsent(int64_t key) const;

  // table_prefetch.cc
  void PrefetchMain();
  void FetchRows(std::unique_lock<std::mutex>* lock, Fetch* fetch, Batch* batch);
  void ReleaseFetches(int64_t number);
  void StopPrefetching(std::unique_lock<std::mutex>* lock);

  TableCore core_;
  bool emptied_ = false;  // Close has come to its end
  std::condition_variable closing_;
  const SipHash handle_key_ = SipHash::WithRandomKey();
  bool sweeping_[kNumShards] = {};  // with Eviction::on_trigger: not all places have been looked at
  bool over_capacity_ = false;      // with the same: rows are still to go
  uint64_t inserted_before_ = 0;    // rows ever inserted, up to the last step
  int64_t binding_ = 0;
  Buffer<uint32_t> row_of_pos_;          // of a pooled lookup
  std::unique_ptr<Below> below_;         // null: all rows are in host memory
  std::unique_ptr<DeviceCache> device_;  // null: there is none
};

}  // namespace msrec
