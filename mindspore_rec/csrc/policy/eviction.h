// SPDX-License-Identifier: Apache-2.0
//
// Eviction: the rules that remove rows. Rows are evicted by age in training steps or in seconds of
// event time, by capacity, or by the norm of the value. Evicting a row also removes the row's
// optimizer state and the key's counter.
//
// A row is *due* for eviction when its age reaches the age limit. Lookups treat a row that is due
// for eviction as missing. A sweep over the table, one slice per step, later frees the memory of
// rows due for eviction. The time at which ages are measured is called the *horizon*. The horizon
// is the current time of the table's clock. If the table evicts only on a trigger, the horizon is
// the time of the last trigger.
//
// The age in steps is the number of whole steps in which the row was not used. While step s runs,
// the clock is s, and last_step is set to s in all rows that the step uses. After step s, the clock
// is s + 1. For example, a row last used in step s has age 0 at clock s + 1, and is due for
// eviction at clock s + 1 + max_idle_steps. A row that is put or imported between two steps counts
// as used in the next step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "rows/row_layout.h"

namespace msrec {

// Order in which rows are evicted if the table has more rows than its capacity.
enum class EvictionOrder : int32_t {
  kLru = 0,   // first the rows whose last use is oldest
  kLfu,       // first the rows that were used least often
  kLfuDecay,  // as kLfu, but the weight of an occurrence halves every half_life_steps steps
  kScore,     // first the rows with the lowest scores, which users set
};

enum class EvictionReason : uint8_t { kNone = 0, kIdleSteps, kIdleSeconds, kCapacity, kNorm };

struct Eviction {
  int64_t max_idle_steps = -1;    // -1: off
  int64_t max_idle_seconds = -1;  // -1: off
  int64_t max_rows = -1;          // -1: off
  int64_t max_bytes = -1;         // limit on the bytes of rows and their index; -1: off
  EvictionOrder order = EvictionOrder::kLru;
  double half_life_steps = 0.0;  // kLfuDecay
  float min_norm = -1.0f;        // rows with a smaller L2 norm are evicted; negative: off
  bool on_trigger = false;       // true if only TableEviction::Evict evicts rows

  bool by_age() const { return max_idle_steps >= 0 || max_idle_seconds >= 0; }
  bool by_norm() const { return min_norm >= 0.0f; }
  bool sweeps() const { return by_age() || by_norm(); }
  // True if each row stores a frequency or score: one float after the optimizer state.
  bool scored() const {
    return order == EvictionOrder::kLfuDecay || order == EvictionOrder::kScore;
  }
};

// The time at which ages are measured.
struct Horizon {
  int64_t step = 0;
  int64_t time = 0;
};

// Counts the epochs of a sketch. An epoch lasts as long as the idle limit. When the epoch number
// grows by 1, the sketch halves all counts. The epoch number does not change when the clock is set
// back or when the idle limit changes.
struct Epochs {
  uint32_t number = 0;
  Horizon seen;  // the clock's time at the last call of Follow

  void Follow(const Eviction& eviction, const Horizon& now) {
    const bool by_steps = eviction.max_idle_steps > 0;
    const int64_t limit = by_steps ? eviction.max_idle_steps : eviction.max_idle_seconds;
    if (limit > 0) {
      const int64_t passed =
          by_steps ? now.step / limit - seen.step / limit : now.time / limit - seen.time / limit;
      number += static_cast<uint32_t>(std::min<int64_t>(std::max<int64_t>(passed, 0), 16));
    }
    seen = now;
  }
};

inline EvictionReason Age(const Eviction& eviction, const Horizon& at, const RowMeta& meta) {
  const int64_t missed = at.step - 1 - meta.last_step;
  if (eviction.max_idle_steps >= 0 && missed >= eviction.max_idle_steps)
    return EvictionReason::kIdleSteps;
  if (eviction.max_idle_seconds >= 0 && at.time - meta.last_time >= eviction.max_idle_seconds)
    return EvictionReason::kIdleSeconds;
  return EvictionReason::kNone;
}

// Returns the number of rows that the sweep of a shard visits in one step. The sweep visits the
// whole shard in about 256 steps. The sweep takes fewer steps for a shard with fewer than 16,384
// rows, and more steps for a shard with more than 4,194,304 rows. Even in the largest table, the
// sweep takes only about a millisecond per step.
inline size_t SliceRows(size_t shard_rows) {
  return std::min<size_t>(std::max<size_t>(shard_rows / 256, 64), 16384);
}

}  // namespace msrec
