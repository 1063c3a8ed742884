// SPDX-License-Identifier: Apache-2.0
//
// RowOptimizer: the update rule of a table's rows, and the layout of rows that follows from it. A
// part of a table, under its mutex.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "rows/rule.h"
#include "table/cache/lower_tiers.h"
#include "table/table_parts.h"

namespace msrec {

class RowOptimizer {
 public:
  // Requires: core outlives it.
  explicit RowOptimizer(TableParts* core) : core_(*core) {}

  // Whether rows keep their layout and state with that rule: its kind is the one they have.
  bool KeepsState(const Rule& rule) const;
  // Take that rule, whose constants may differ; return its number.
  int64_t Replace(const Rule& rule);
  // Return the number of the rule, unlike any before.
  int64_t binding() const { return binding_; }

  // All rows in another layout.
  struct Relaid {
    Rule rule;
    RowLayout layout;
    std::vector<std::unique_ptr<SlabStore>> stores;  // one a shard
    LowerTiers::Relaid lower;
  };
  // Copy all rows in the layout of that rule, with fresh state, beside those there are. Whatever
  // fails, these stay.
  Relaid Relay(const Rule& rule);
  // Take the copies. Requires that the step was forgotten. Returns the queue in front of the tiers
  // that the table has left.
  std::shared_ptr<WriteBehind> Adopt(Relaid relaid) noexcept;

  // Return the constants of one step. Throws where an argument of the step is out of range, and
  // std::runtime_error where it is of a rule that was replaced.
  StepConstants Constants(const StepInput& input) const;

  // Make room for what Update notes about rows. Throws std::bad_alloc.
  void ReserveUpdate();
  // Make the pointers to the rows of a shard's gradients good, and note that these rows change. Any
  // thread, one at a time for each shard. Cannot fail after ReserveUpdate.
  void PrepareUpdate(int shard, bool stale);
  // Update the rows of a shard by their gradients; the same.
  void Update(const StepConstants& constants, int shard);

 private:
  TableParts& core_;
  int64_t binding_ = 0;
};

}  // namespace msrec
