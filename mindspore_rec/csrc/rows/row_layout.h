// SPDX-License-Identifier: Apache-2.0
//
// The layout of a row in memory. A row is one contiguous block:
//
//   | RowMeta (20 bytes) | value: dim numbers | optimizer state | score: one float32, if any |
//
// All numbers of the value have one type, and all numbers of the state have one type. A value or
// state with an odd number of 2-byte numbers is padded to a multiple of 4 bytes. The metadata comes
// first, so that the key and the beginning of the value are in the same cache line or in adjacent
// cache lines. A row is one block of memory, so a tier copies the whole row at once. Rows are
// 4-byte aligned. The numbers are read and written by the kernels (rows/kernels.h) and by
// rows/row_values.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "util/number_type.h"

namespace msrec {

struct __attribute__((packed)) RowMeta {
  int64_t key;
  uint32_t count : 30;  // occurrences in training; saturates
  uint32_t live : 1;    // 0 if the block is free
  uint32_t dirty : 1;   // 1 if the change log of the current epoch already contains the key
  uint32_t last_step;   // training step of the last training lookup or put
  uint32_t last_time;   // event time of that lookup or put in whole seconds, or 0 without a time
                        // source
};
static_assert(sizeof(RowMeta) == 20,
              "RowMeta is part of the memory promise: 32 bytes with the index");

constexpr uint32_t kMaxCount = (1u << 30) - 1;

inline void AddCount(RowMeta* meta, uint32_t occurrences) {
  const uint32_t room = kMaxCount - meta->count;
  meta->count = meta->count + (occurrences < room ? occurrences : room);
}

// Returns the padded size in bytes of n numbers in a row. PartBytes is always inlined, because the
// kernels of every instruction set use PartBytes.
__attribute__((always_inline)) inline constexpr size_t PartBytes(int32_t n, NumberType type) {
  return (static_cast<size_t>(n) * BytesOf(type) + 3) / 4 * 4;
}

constexpr int32_t kMaxDim = 8192;  // largest dim of a table

struct RowLayout {
  int32_t dim = 0;  // numbers of the value, or 0 for the counters of candidates for admission
  int32_t state_width = 0;  // numbers of the optimizer state and, if there is one, the score
  bool scored = false;  // true if the last number of the state is the frequency or score, always
                        // float32
  NumberType value_type = NumberType::kFloat32;
  NumberType state_type = NumberType::kFloat32;

  // Count of the numbers in the state, without the frequency or score.
  int32_t optimizer_width() const { return state_width - (scored ? 1 : 0); }
  size_t value_bytes() const { return PartBytes(dim, value_type); }
  size_t state_bytes() const {
    return PartBytes(optimizer_width(), state_type) + (scored ? sizeof(float) : 0);
  }
  size_t stride() const { return sizeof(RowMeta) + value_bytes() + state_bytes(); }
  // Returns whether all numbers of a row are consecutive floats.
  bool is_float32() const {
    return value_type == NumberType::kFloat32 && state_type == NumberType::kFloat32;
  }
};

inline RowMeta* Meta(char* row) { return reinterpret_cast<RowMeta*>(row); }
inline const RowMeta* Meta(const char* row) { return reinterpret_cast<const RowMeta*>(row); }

}  // namespace msrec
