// SPDX-License-Identifier: Apache-2.0
//
// RowOptimizer: the update rule of a table's rows, and the layout of rows that the rule requires.
// RowOptimizer is a part of a table; the caller must hold the table's mutex.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "rows/step_constants.h"
#include "table/cache/lower_tiers.h"
#include "table/table_parts.h"

namespace msrec {

class RowOptimizer {
 public:
  // Requires: core outlives this object.
  explicit RowOptimizer(TableParts* core) : core_(*core) {}

  // True if an optimizer is bound, and `rule` has the same kind and the same number of states as
  // the current rule. If KeepsState returns true, the rows keep their layout and state when `rule`
  // is bound.
  bool KeepsState(const Rule& rule) const;
  // Replace the rule by a rule of the same kind; the new rule's constants may differ. Return the
  // new rule's number.
  int64_t Replace(const Rule& rule);
  // Return the unique id of the current rule.
  int64_t binding() const { return binding_; }

  // Copies of all rows. The copies have the layout that `rule` requires.
  struct Relaid {
    Rule rule;
    RowLayout layout;
    std::vector<std::unique_ptr<SlabStore>> stores;  // one a shard
    LowerTiers::Relaid lower;
  };
  // Copy all rows to the layout that `rule` requires, and give the copies new optimizer state. If
  // anything fails, the existing rows are unchanged.
  Relaid Relay(const Rule& rule);
  // Replace all rows by the copies in `relaid`. Requires that the step's lookups were dropped.
  // Returns the queue in front of the old lower tiers; the table no longer uses this queue. Returns
  // null if there are no lower tiers.
  std::shared_ptr<WriteBehind> Adopt(Relaid relaid) noexcept;

  // Return the constants of one step. Throws if an argument of the step is out of range. Throws
  // std::runtime_error if the step belongs to a rule that has been replaced.
  StepConstants Constants(const StepInput& input) const;

  // Reserve memory for all data that Update records. Throws std::bad_alloc.
  void ReserveUpdate();
  // Record that the rows to which a shard's gradients belong will change. If `stale` is true, first
  // look up the rows again, because the addresses of the rows may have changed. Any thread may call
  // PrepareUpdate, but only one thread at a time for the same shard. Cannot fail after
  // ReserveUpdate.
  void PrepareUpdate(int shard, bool stale);
  // Apply a shard's gradients to the shard's rows. Any thread may call Update, but only one thread
  // at a time for the same shard.
  void Update(const StepConstants& constants, int shard);

 private:
  TableParts& core_;
  int64_t binding_ = 0;
};

}  // namespace msrec
