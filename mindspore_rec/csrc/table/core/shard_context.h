// SPDX-License-Identifier: Apache-2.0
//
// ShardContext: the state that the shards of a table share. Pins: indexes of the steps, calls and
// batches that pin rows in host memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "init/initializer.h"
#include "policy/admission.h"
#include "policy/eviction.h"
#include "rows/kernels.h"
#include "rows/row_layout.h"
#include "rows/rule.h"
#include "table/core/placement.h"
#include "table/device/device_rows.h"

namespace msrec {

// Indexes of the steps, calls and prefetched batches that pin rows in host memory; used only in
// tables with lower tiers. Because the indexes wrap around, a row that was not touched for a very
// long time may stay pinned longer than necessary. Pinning a row longer than necessary is harmless.
struct Pins {
  uint16_t step = 1;  // index of this step, in the pins of its rows; 15 bits
  uint16_t call = 1;  // index of the current call, in the pins of its rows; 15 bits; equals `step`
                      // outside a call
  uint16_t released = 0;  // prefetched batches up to this number are released
  uint16_t serial = 1;    // the last index of a step or call; never 0

  static constexpr uint16_t kMostBatches = 1024;

  void BeginStep() { step = call = NextSerial(); }
  void BeginCall() { call = NextSerial(); }
  void EndCall() { call = step; }
  // Release all batches up to `number`. If `number` is already released, do nothing.
  void ReleaseUpTo(uint16_t number) {
    const uint16_t ahead = number - released;
    if (ahead < 0x8000) released = number;
  }
  // True if the rows of the batch with number `number` are still needed, because the batch was
  // prefetched and is not released yet.
  bool IsAhead(uint16_t number) const {
    const uint16_t ahead = number - released;
    return ahead >= 1 && ahead <= kMostBatches;
  }
  // Return the later of two batch numbers. Batches may be prefetched in any order.
  uint16_t Later(uint16_t a, uint16_t b) const {
    if (!IsAhead(a)) return b;
    return IsAhead(b) && static_cast<uint16_t>(b - released) > static_cast<uint16_t>(a - released)
               ? b
               : a;
  }

 private:
  uint16_t NextSerial() {
    serial = static_cast<uint16_t>(serial % 0x7fff + 1);
    return serial;
  }
};

struct RowPin {
  uint16_t used : 15;  // Pins::step or Pins::call at the last use of the row
  uint16_t copy : 1;   // 1 if a lower tier has a copy, which may be outdated
  uint16_t needed;     // number of the last prefetched batch that contains the key
};
static_assert(sizeof(RowPin) == 4, "4 bytes a row of host memory");

// The state that all shards of a table share. The context changes only between batched operations.
struct ShardContext {
  RowLayout layout;
  Initializer initializer;
  Rule rule;
  Admission admission;
  Eviction eviction;
  int64_t step = 0;   // completed training steps of the table
  uint32_t time = 0;  // watermark: the greatest event time so far in seconds, or 0 before the first
                      // event time
  Horizon horizon;    // the time at which ages are measured
  Epochs epochs;
  int64_t vocabulary = 0;  // > 0: a static table of the keys 0 .. vocabulary - 1
  const Kernels* kernels = nullptr;
  const RowKernels* row_kernels = nullptr;  // kernels for the layout's types
  DeviceRows* device = nullptr;             // null without a device cache
  bool tiered = false;                      // true if there are tiers below host memory
  uint32_t first_time = 0;  // the first watermark, which is the time of all earlier keys
  Placement placement;      // decides which keys' rows this worker owns
  Pins pins;

  bool is_static() const { return vocabulary > 0; }
  // True if the table has an identity index. In an identity index, the key itself determines the
  // place of its row, and even an unused key has a place.
  bool identity() const { return is_static() && !tiered && !placement.spread(); }
  // True if the table has a vocabulary, but stores the row of a key only after the key is first
  // trained. For an untrained key, a lookup returns the key's first value.
  bool has_unseen() const { return is_static() && !identity(); }
  bool Due(const RowMeta& meta) const {
    return eviction.by_age() && Age(eviction, horizon, meta) != EvictionReason::kNone;
  }
};

inline uint32_t ClampStep(int64_t step) {
  return static_cast<uint32_t>(std::min<int64_t>(step, 0xffffffffLL));
}

// Return the number of floats in a row's state: the floats of the optimizer state, plus 1 if the
// rows store a frequency or score.
inline int32_t StateWidth(const Rule& rule, const Eviction& eviction, int32_t dim) {
  return rule.StateWidth(dim) + (eviction.scored() ? 1 : 0);
}

}  // namespace msrec
