// SPDX-License-Identifier: Apache-2.0
//
// Rules for one row, based on the settings and the clock of a table. The rules compute the first
// contents of a row, whether and why a row must be evicted, and the row's eviction priority. The
// argument of a rule is the block of a row (row_layout.h). The block is in host memory, or is a
// copy from a lower tier.
#pragma once

#include <cstdint>

#include "rows/row_layout.h"
#include "rows/row_values.h"
#include "table/core/shard_context.h"

namespace msrec {

// Set a row's missing event time to the table's first event time.
inline void FillTime(const ShardContext& context, RowMeta* meta) {
  if (meta->last_time == 0 && context.time != 0) meta->last_time = context.first_time;
}

// Return the row that an evaluation lookup reads from a lower tier, or null if the row is due for
// eviction. `block` contains a copy of the row.
inline const char* ReadThrough(const ShardContext& context, char* block) {
  FillTime(context, Meta(block));
  return context.Due(*Meta(block)) ? nullptr : block;
}

// Return why a row must be evicted, or kNone if the row stays. If `norms` is true, a small norm is
// also a reason to evict a row.
inline EvictionReason ReasonToEvict(const ShardContext& context, const char* row, bool norms) {
  const EvictionReason due = Age(context.eviction, context.horizon, *Meta(row));
  if (due != EvictionReason::kNone || !norms) return due;
  const double limit = context.eviction.min_norm;
  const bool below = SquaredNormOfValue(context.layout, row) < limit * limit;
  return below ? EvictionReason::kNorm : EvictionReason::kNone;
}

// Return the priority of a row; the row with the lowest priority is evicted first.
double EvictionPriority(const ShardContext& context, const char* row);

// Fill a row with the first contents for `key`. Does not change the `dirty` bit.
void WriteFresh(const ShardContext& context, char* row, int64_t key);
// Fill a block with the first contents for `key`, and clear the `dirty` bit.
inline void WriteFirst(const ShardContext& context, char* block, int64_t key) {
  Meta(block)->dirty = 0;
  WriteFresh(context, block, key);
}
// Fill the state of a row with the rule's initial state. The row has the layout `layout`.
void WriteFreshState(const ShardContext& context, const RowLayout& layout, char* row);
// Copy a row to another layout, with fresh optimizer state.
void Relay(const ShardContext& context, const char* from, const RowLayout& layout, char* to);

}  // namespace msrec
