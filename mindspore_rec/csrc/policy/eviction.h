// SPDX-License-Identifier: Apache-2.0
//
// Eviction by age in training steps: a row not seen in training for max_idle_steps steps is dropped
// with its optimizer state and counter. The sweep that frees memory works through a shard in
// slices; a lookup never sees a row that is due, swept or not.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "table/row_layout.h"

namespace msrec {

struct Eviction {
  int64_t max_idle_steps = -1;  // -1: off

  bool enabled() const { return max_idle_steps >= 0; }
  bool Due(const RowMeta& meta, int64_t step) const {
    return enabled() && step - static_cast<int64_t>(meta.last_step) >= max_idle_steps;
  }
};

// Rows of a shard one step's slice looks at: the whole shard comes round every 256 steps, and a
// slice of the largest table stays near a millisecond.
inline size_t SliceRows(size_t shard_rows) {
  return std::min<size_t>(std::max<size_t>(shard_rows / 256, 64), 16384);
}

}  // namespace msrec
