// SPDX-License-Identifier: Apache-2.0
//
// The layout of a row of int8 or int4, in one place:
//
//   | key: int64 | last step, last time: uint32 each | scale, offset: float16 each | codes |
//
// A number is offset + scale * code. Scale and offset precede the codes, as in FBGEMM's
// IntNBitTableBatchedEmbeddingBags. A code has 8 or 4 bits. With 4 bits, a byte has two codes, the
// first code in the lower half. If dim is odd, the upper half of the last byte is 0. Rows of a
// static vocabulary have no key. If a table has no age limit, its rows have no last step and no
// last time. Rows are not aligned.
//
// The offset is the least number of the row, rounded down to a float16. The scale is the least
// float16 for which offset + scale * greatest code is at least the greatest number. The error of a
// number is at most half the scale, unless numbers exceed the range of float16. A number beyond the
// range of float16 becomes the nearest number that the row can represent. If all numbers of a row
// are equal, all codes are the smallest code for which the scale does not overflow float16. The
// scale of a row of equal numbers is rounded to the nearest float16. A row with an infinity or a
// NaN becomes all NaN: scale and offset are NaN, and the codes are 0. The NumPy version of this
// code, mindspore_rec/common/rows/quantise.py, computes identical rows.
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

// Quantise `dim` numbers, and write scale, offset and codes to `to`, the address of the row's
// scale.
void QuantiseNumbers(const float* numbers, int32_t dim, int32_t bits, char* to);

}  // namespace msrec
