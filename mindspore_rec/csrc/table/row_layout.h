// SPDX-License-Identifier: Apache-2.0
//
// The layout of a row in memory, in one place. A row is one contiguous block:
//
//   | RowMeta (20 bytes) | value: dim floats | optimizer state: state_width floats |
//
// The metadata comes first so that a lookup touches key and value in adjacent cache lines, and one
// block so that a tier moves a row with one copy. Rows are 4-byte aligned.
#pragma once

#include <cstddef>
#include <cstdint>

namespace msrec {

struct __attribute__((packed)) RowMeta {
  int64_t key;
  uint32_t count : 30;  // training occurrences seen, saturating
  uint32_t live : 1;    // 0: the block is free
  uint32_t dirty : 1;   // already noted in the change log's current epoch
  uint32_t last_step;   // training step of the last training lookup or put
  uint32_t last_time;   // event time of the same, whole seconds; 0 where there is no time source
};
static_assert(sizeof(RowMeta) == 20,
              "RowMeta is part of the memory promise: 32 bytes with the index");

constexpr uint32_t kMaxCount = (1u << 30) - 1;

inline void AddCount(RowMeta* meta, uint32_t occurrences) {
  const uint32_t room = kMaxCount - meta->count;
  meta->count = meta->count + (occurrences < room ? occurrences : room);
}

struct RowLayout {
  int32_t dim = 0;  // floats of the value; 0 for rows that only count (admission candidates)
  int32_t state_width = 0;  // floats of optimizer state

  size_t stride() const {
    return sizeof(RowMeta) + sizeof(float) * (static_cast<size_t>(dim) + state_width);
  }
};

inline RowMeta* Meta(char* row) { return reinterpret_cast<RowMeta*>(row); }
inline const RowMeta* Meta(const char* row) { return reinterpret_cast<const RowMeta*>(row); }
inline float* Value(char* row) { return reinterpret_cast<float*>(row + sizeof(RowMeta)); }
inline const float* Value(const char* row) {
  return reinterpret_cast<const float*>(row + sizeof(RowMeta));
}

}  // namespace msrec
