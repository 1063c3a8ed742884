// SPDX-License-Identifier: Apache-2.0
//
// Rules for one row by the settings and the clock of a table, given its block (row_layout.h): its
// first contents, whether it is to leave and why, its place in the order of leaving. The block may
// be in host memory or a copy from a lower tier.
#pragma once

#include <cstdint>

#include "rows/row_layout.h"
#include "rows/row_values.h"
#include "table/core/shard_context.h"

namespace msrec {

// Give a row that carries no event time the first one there was.
inline void FillTime(const ShardContext& context, RowMeta* meta) {
  if (meta->last_time == 0 && context.time != 0) meta->last_time = context.first_time;
}

// Make a block from a lower tier what evaluation sees of the row; null when it is due.
inline const char* ReadThrough(const ShardContext& context, char* block) {
  FillTime(context, Meta(block));
  return context.Due(*Meta(block)) ? nullptr : block;
}

// Return why a row is evicted; kNone: it stays. With `norms`, a small norm is a reason.
inline EvictionReason ReasonToEvict(const ShardContext& context, const char* row, bool norms) {
  const EvictionReason due = Age(context.eviction, context.horizon, *Meta(row));
  if (due != EvictionReason::kNone || !norms) return due;
  const double limit = context.eviction.min_norm;
  const bool below = SquaredNormOfValue(context.layout, row) < limit * limit;
  return below ? EvictionReason::kNorm : EvictionReason::kNone;
}

// Return the place of a row in the order of eviction: the lower, the earlier it goes.
double EvictionPriority(const ShardContext& context, const char* row);

// Fill a row with what its key has at first, but for the `dirty` bit, which stays.
void WriteFresh(const ShardContext& context, char* row, int64_t key);
// Fill a block with the row that a key has at first.
inline void WriteFirst(const ShardContext& context, char* block, int64_t key) {
  Meta(block)->dirty = 0;
  WriteFresh(context, block, key);
}
// Fill the state of a row of that layout with what the rule has at first.
void WriteFreshState(const ShardContext& context, const RowLayout& layout, char* row);
// Lay out a row anew, with fresh optimizer state.
void Relay(const ShardContext& context, const char* from, const RowLayout& layout, char* to);

}  // namespace msrec
