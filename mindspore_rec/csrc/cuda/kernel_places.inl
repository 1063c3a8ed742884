// SPDX-License-Identifier: Apache-2.0
//
// What several kernels need: where a thread's number is, and functions chosen by a number.
#pragma once

#include "cuda/kernel.h"
#include "dense/functions.inl"

namespace msrec {
namespace kernels {

// Row and column of thread i of [rows, width]. Thread numbers have 32 bits, in which a GPU divides
// several times faster than in 64.
struct Place {
  int64_t row, column;
};
MSREC_INLINE Place PlaceOf(int64_t i, int64_t width) {
  const uint32_t row = static_cast<uint32_t>(i) / static_cast<uint32_t>(width);
  return {row, i - row * width};
}
MSREC_INLINE float* RowAt(const Rows& rows, int64_t row) { return rows.data + row * rows.ld; }
MSREC_INLINE float* At(const Rows& rows, const Place& at) {
  return RowAt(rows, at.row) + at.column;
}
MSREC_INLINE uint16_t* At(const HalfRows& rows, const Place& at) {
  return rows.data + at.row * rows.ld + at.column;
}

MSREC_INLINE void Put(float value, bool adds, float* at) { *at = adds ? *at + value : value; }

MSREC_INLINE float Widened(uint16_t half) { return AsFloat(static_cast<uint32_t>(half) << 16); }

MSREC_INLINE float ActivationOf(int32_t activation, float x) {
  switch (activation) {
    case 1:
      return Relu::Value(x);
    case 2:
      return LeakyRelu::Value(x);
    case 4:
      return TanhOf::Value(x);
    case 5:
      return SigmoidOf::Value(x);
    default:
      return x;
  }
}

MSREC_INLINE float GradientOf(int32_t activation, float y, float g) {
  switch (activation) {
    case 1:
      return Relu::Gradient(y, g);
    case 2:
      return LeakyRelu::Gradient(y, g);
    case 4:
      return TanhOf::Gradient(y, g);
    case 5:
      return SigmoidOf::Gradient(y, g);
    default:
      return g;
  }
}

// x times the mask's number of that row and column, where there are masks.
MSREC_INLINE float Masked(const Masks& masks, const Place& at, int64_t width, float x) {
  if (masks.data == nullptr) return x;
  int64_t mask = masks.first + at.row;
  // Seldom more than one reading of the masks: a GPU has no instruction for the rest of a division.
  if (mask >= masks.count) mask -= masks.count;
  if (mask >= masks.count) mask %= masks.count;
  return x * masks.data[mask * width + at.column];
}

// Calls use(row, read(row)) for all rows of a chunk. Reads several rows before it uses them: their
// loads then wait for memory together, though a use may write what the compiler thinks is read
// next.
template <typename Read, typename Use>
MSREC_INLINE void ForRows(const Chunks& chunks, int64_t chunk, const Read& read, const Use& use) {
  constexpr int kAtOnce = 8;
  int64_t r = chunk * chunks.rows_each;
  const int64_t end = r + chunks.rows_each < chunks.rows ? r + chunks.rows_each : chunks.rows;
  for (; r + kAtOnce <= end; r += kAtOnce) {
    decltype(read(r)) numbers[kAtOnce];
    for (int k = 0; k < kAtOnce; ++k) numbers[k] = read(r + k);
    for (int k = 0; k < kAtOnce; ++k) use(r + k, numbers[k]);
  }
  for (; r < end; ++r) use(r, read(r));
}

}  // namespace kernels
}  // namespace msrec
