// SPDX-License-Identifier: Apache-2.0
#include "table/core/row_rules.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace msrec {

void WriteFresh(const ShardContext& context, char* row, int64_t key) {
  RowMeta* meta = Meta(row);
  const uint32_t dirty = meta->dirty;
  *meta = RowMeta{};
  meta->key = key;
  meta->live = 1;
  meta->dirty = dirty;
  // In a static table, a row that was never trained has the same contents at any time, whether the
  // row is in memory or not. Training sets the step and the time.
  meta->last_step = context.is_static() ? 0 : ClampStep(context.step);
  meta->last_time = context.is_static() ? context.first_time : context.time;
  const RowLayout& layout = context.layout;
  float value[kMaxDim];
  context.kernels->initialize(context.initializer, key, layout.dim, value);
  WriteValue(layout, value, row);
  WriteFreshState(context, layout, row);
}

void WriteFreshState(const ShardContext& context, const RowLayout& layout, char* row) {
  const Rule& rule = context.rule;
  FillOptimizerState(layout, rule.FirstAccumulators(layout.dim), rule.initial_accumulator, row);
  if (layout.scored) Score(layout, row) = 0.0f;
}

void Relay(const ShardContext& context, const char* from, const RowLayout& layout, char* to) {
  std::memcpy(to, from, sizeof(RowMeta) + layout.value_bytes());
  WriteFreshState(context, layout, to);
  if (layout.scored) Score(layout, to) = Score(context.layout, from);
}

double EvictionPriority(const ShardContext& context, const char* row) {
  const RowMeta* meta = Meta(row);
  switch (context.eviction.order) {
    case EvictionOrder::kLru:
      return meta->last_step;
    case EvictionOrder::kLfu:
      return meta->count;
    case EvictionOrder::kLfuDecay: {
      const double idle = static_cast<double>(context.step - meta->last_step);
      const double frequency = Score(context.layout, row);
      if (!(frequency > 0.0)) break;
      return std::log2(frequency) - idle / context.eviction.half_life_steps;
    }
    case EvictionOrder::kScore:
      // A score may be NaN, because an import may set any score.
      if (std::isnan(Score(context.layout, row))) break;
      return Score(context.layout, row);
  }
  return -std::numeric_limits<double>::infinity();
}

}  // namespace msrec
