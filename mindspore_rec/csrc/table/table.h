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
// for bad arguments, TableClosed after Close, OutOfMemory when memory runs out; messages name the
// table.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "table/batch.h"
#include "table/gradient_sum.h"
#include "table/shard.h"

namespace msrec {

struct TableClosed : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct NoOptimizer : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct TableConfig {
  std::string name;
  int32_t dim = 0;
  Initializer initializer;  // its seed is filled from `seed` and the name
  uint64_t seed = 0;
  int64_t vocabulary = 0;      // > 0: a static table of keys 0 .. vocabulary - 1
  bool outside_zeros = false;  // static: ids outside read zeros; else they are an error
  float unknown_value = 0.0f;  // what unknown and not admitted keys read
  Admission admission;
  Eviction eviction;
};

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

class Table {
 public:
  explicit Table(const TableConfig& config);
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  const TableConfig& config() const { return config_; }
  int32_t dim() const { return config_.dim; }

  // ---- training and evaluation ----

  // out is [ids.size, dim]. Inserts, counts and touches. Throws NoOptimizer when none is bound: a
  // table that would never learn is an error.
  int64_t LookupTrain(const IdView& ids, const IdFilter& filter, float* out);
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
  // One optimizer update; then a slice of the eviction sweep.
  void Step(const StepInput& input);
  // Forgets lookups and gradients since the last step.
  void DiscardGradients();

  // Sets the rule. Rows that exist keep values; their state starts fresh unless the rule's kind is
  // the one they have. Returns a number unlike any before, for StepInput::binding: the step of an
  // optimizer that was replaced since then throws.
  int64_t BindOptimizer(const Rule& rule);
  bool has_optimizer() const { return has_optimizer_; }

  // ---- rows by key ----

  // Like LookupTrain where `insert`, but needs no optimizer and is not trained; else like
  // LookupEval.
  void Get(const IdView& ids, const IdFilter& filter, bool insert, float* out);
  void Put(const IdView& ids, const float* values, size_t value_rows);
  size_t Erase(const IdView& ids);
  void Contains(const IdView& ids, bool* out);
  size_t Size();
  std::vector<int64_t> Keys();

  // ---- whole table ----

  ExportedRows Export(bool with_state);
  // The rows of these keys, in this order; absent ones are marked.
  ExportedRows ExportKeys(const IdView& keys, bool with_state);
  // Starts recording changes, if nobody has, and returns a mark for ExportSince.
  uint64_t Mark();
  ExportedRows ExportSince(uint64_t mark, bool with_state);
  // Drops what was recorded before the mark; 0 stops recording.
  void ReleaseBefore(uint64_t mark);
  // Puts rows; null arrays as in Shard::Import. Throws when state_width does not fit the optimizer.
  void Import(size_t n, const RowArrays& rows, int32_t state_width);
  void Clear();
  void EvictAll();

  // A table that is not trainable is only read: training lookups act as evaluation lookups, and
  // their gradients are dropped.
  void SetTrainable(bool trainable);
  void SetAdmissionThreshold(int64_t threshold);
  void SetMaxIdleSteps(int64_t steps);
  void SetClock(int64_t step, uint32_t time);
  int64_t step();

  std::vector<std::pair<std::string, double>> Stats();
  void Close();

 private:
  class Guard;
  struct Deferred {
    std::unique_ptr<Batch> batch;
    std::vector<float> grad;
  };

  std::string Where(const std::string& what) const {
    return "table '" + config_.name + "': " + what;
  }
  std::unique_ptr<Batch> NewBatch(const IdView& ids, const IdFilter& filter);
  void Recycle(std::unique_ptr<Batch> batch);
  int64_t Keep(std::unique_ptr<Batch> batch);
  void Resolve(Batch* batch, void (Shard::*find)(Batch*), float* out);
  int64_t Lookup(const IdView& ids, const IdFilter& filter, const BagView* bags, bool train,
                 float* out);
  void Pool(Batch* batch, const IdView& ids, const BagView& bags, float* out);
  void CheckThreshold(int64_t threshold) const;
  void CheckMaxIdleSteps(int64_t steps) const;
  void CheckBags(const IdView& ids, const BagView& bags) const;
  void CheckKeys(const IdView& keys, const char* argument) const;
  void RequireOptimizer() const;
  uint64_t Structure() const;
  void MergeDeferred(bool all);
  void ForgetStep();
  ExportedRows Pack(const std::vector<std::pair<int64_t, const char*>>& rows,
                    bool with_state) const;

  TableConfig config_;
  ShardContext context_;
  std::atomic<bool> has_optimizer_{false};
  bool trainable_ = true;
  std::vector<float> default_row_;

  std::mutex mutex_;
  bool closed_ = false;
  std::vector<std::unique_ptr<Shard>> shards_;
  uint64_t relayouts_ = 0;
  uint64_t epoch_ = 0;        // the last mark; never used twice
  uint64_t oldest_mark_ = 0;  // what is recorded reaches back to this one; 0: nothing is recorded

  int64_t next_ticket_ = 1;
  int64_t binding_ = 0;
  std::map<int64_t, std::unique_ptr<Batch>> outstanding_;
  std::map<int64_t, Deferred> deferred_;
  GradientSum gradients_;
  std::vector<std::unique_ptr<Batch>> spare_;
};

}  // namespace msrec
