// SPDX-License-Identifier: Apache-2.0
//
// The layout of a row of int8 or int4, in one place:
//
//   | key: int64 | last step, last time: uint32 each | scale, offset: float16 each | codes |
//
// A number is offset + scale * code. Scale and offset precede the codes, as in FBGEMM's
// IntNBitTableBatchedEmbeddingBags. A code has 8 or 4 bits. With 4 bits, the first code of a byte
// is in the lower half, and an odd dim leaves the last upper half 0. Rows of a static vocabulary
// have no key. Rows without an age limit have no last step and time. Rows are not aligned.
//
// The offset is the least number, rounded down to a float16. The scale is the least float16 with
// which the codes reach the greatest number. So the error of a number is at most half the scale,
// unless the numbers exceed the range of float16. For such numbers the result is the nearest
// possible number. A row of equal numbers has one code, the least whose scale is a finite float16,
// and the nearest float16 as scale. A row with an infinity or a NaN reads as all NaN: its scale and
// offset are NaN, its codes 0. (NumPy's version, with the same bits:
// mindspore_rec/common/rows/quantise.py.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace msrec {

struct QuantisedLayout {
  int32_t dim = 0;
  int32_t bits = 8;  // 8 or 4
  bool keyed = true;
  bool aged = false;

  // Number of bytes before the scale.
  size_t header() const { return (keyed ? sizeof(int64_t) : 0) + (aged ? 8 : 0); }
  size_t code_bytes() const { return (static_cast<size_t>(dim) * bits + 7) / 8; }
  size_t stride() const { return header() + 4 + code_bytes(); }
};

struct RowAges {
  uint32_t last_step = 0;
  uint32_t last_time = 0;
};

inline int64_t KeyOfQuantised(const char* row) {
  int64_t key;
  std::memcpy(&key, row, sizeof(key));
  return key;
}
inline void SetKeyOfQuantised(char* row, int64_t key) { std::memcpy(row, &key, sizeof(key)); }

// Requires layout.aged.
inline RowAges AgesOfQuantised(const char* row) {
  RowAges ages;
  std::memcpy(&ages, row + sizeof(int64_t), sizeof(ages));
  return ages;
}
inline void SetAgesOfQuantised(char* row, const RowAges& ages) {
  std::memcpy(row + sizeof(int64_t), &ages, sizeof(ages));
}

// Write scale, offset and codes of `dim` numbers to `to`, the address of a row's scale.
void QuantiseNumbers(const float* numbers, int32_t dim, int32_t bits, char* to);

}  // namespace msrec
