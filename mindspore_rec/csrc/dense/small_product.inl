// SPDX-License-Identifier: Apache-2.0
//
// Products of matrices that fit in the first cache, for loops over rows: vectors run along the
// columns of the result, sums go in the order of the inner dimension, so that every instruction set
// gives the same bits. Included by the loops of one instruction set only, as elementwise.inl says.
#pragma once

#include <cstdint>

#include "dense/inline.h"

namespace msrec {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

// `kCount` floats that are computed at once.
template <int kCount>
struct Lanes;
template <>
struct Lanes<1> {
  using Type = float;
  static constexpr int kWidth = 1;
};
template <>
struct Lanes<4> {
  typedef float Type __attribute__((vector_size(16)));
  static constexpr int kWidth = 4;
};
template <>
struct Lanes<8> {
  typedef float Type __attribute__((vector_size(32)));
  static constexpr int kWidth = 8;
};
template <>
struct Lanes<16> {
  typedef float Type __attribute__((vector_size(64)));
  static constexpr int kWidth = 16;
};

template <typename V>
MSREC_INLINE void Read(const float* from, V* to) {
  __builtin_memcpy(to, from, sizeof(V));
}

template <typename V>
MSREC_INLINE void Write(const V& from, float* to) {
  __builtin_memcpy(to, &from, sizeof(V));
}

// Calls body(lanes, j) for all columns j of n, as many at a time as `lanes` has.
template <typename Body>
MSREC_INLINE void ForColumns(int64_t n, const Body& body) {
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) body(Lanes<kLanes>{}, j);
  if constexpr (kLanes > 8) {
    if (j + 8 <= n) {
      body(Lanes<8>{}, j);
      j += 8;
    }
  }
  if constexpr (kLanes > 4) {
    if (j + 4 <= n) {
      body(Lanes<4>{}, j);
      j += 4;
    }
  }
  for (; j < n; ++j) body(Lanes<1>{}, j);
}

// A factor whose elements are read one by one: element (i, p) is data[i row_step + p step].
struct Scalars {
  const float* data;
  int64_t row_step, step;
};

// c [kRows, kVectors vectors] = a [kRows, k] b [k, ...], or += it.
template <int kRows, int kVectors, typename V>
MSREC_INLINE void ProductTile(int64_t k, const Scalars& a, const float* b, int64_t ldb, bool adds,
                              float* c, int64_t ldc) {
  constexpr int64_t kWidth = sizeof(V) / sizeof(float);
  V sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      if (adds) {
        Read(c + r * ldc + v * kWidth, &sums[r][v]);
      } else {
        sums[r][v] = V{};
      }
    }
  }
  for (int64_t p = 0; p < k; ++p) {
    V row[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) Read(b + p * ldb + v * kWidth, &row[v]);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const float factor = a.data[r * a.row_step + p * a.step];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[r][v] += factor * row[v];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) Write(sums[r][v], c + r * ldc + v * kWidth);
  }
}

template <int kRows>
MSREC_INLINE void ProductRows(int64_t n, int64_t k, const Scalars& a, const float* b, int64_t ldb,
                              bool adds, float* c, int64_t ldc) {
  using Most = typename Lanes<kLanes>::Type;
  int64_t j = 0;
  for (; j + 2 * kLanes <= n; j += 2 * kLanes) {
    ProductTile<kRows, 2, Most>(k, a, b + j, ldb, adds, c + j, ldc);
  }
  ForColumns(n - j, [&](auto lanes, int64_t i) {
    using V = typename decltype(lanes)::Type;
    ProductTile<kRows, 1, V>(k, a, b + j + i, ldb, adds, c + j + i, ldc);
  });
}

// c [m, n] = a [m, k] b [k, n], or += it.
MSREC_INLINE void SmallProduct(int64_t m, int64_t n, int64_t k, Scalars a, const float* b,
                               int64_t ldb, bool adds, float* c, int64_t ldc) {
  for (; m >= 4; m -= 4, a.data += 4 * a.row_step, c += 4 * ldc) {
    ProductRows<4>(n, k, a, b, ldb, adds, c, ldc);
  }
  for (; m >= 1; --m, a.data += a.row_step, c += ldc) {
    ProductRows<1>(n, k, a, b, ldb, adds, c, ldc);
  }
}

// Sum of 16 partial sums, of every 16th element each: sums 8 apart are added, then 4, 2 and 1
// apart.
MSREC_INLINE float SumOf16(const float* partial) {
  typename Lanes<8>::Type low, high;
  Read(partial, &low);
  Read(partial + 8, &high);
  low += high;
  const typename Lanes<4>::Type fours =
      __builtin_shufflevector(low, low, 0, 1, 2, 3) + __builtin_shufflevector(low, low, 4, 5, 6, 7);
  return (fours[0] + fours[2]) + (fours[1] + fours[3]);
}

// Sum of products of two vectors, by 16 partial sums whatever the instruction set.
MSREC_INLINE float Dot(int64_t n, const float* x, const float* y) {
  using V = typename Lanes<kLanes>::Type;
  constexpr int kVectors = 16 / kLanes;
  V sums[kVectors] = {};
  int64_t j = 0;
  for (; j + 16 <= n; j += 16) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      V left, right;
      Read(x + j + v * kLanes, &left);
      Read(y + j + v * kLanes, &right);
      sums[v] += left * right;
    }
  }
  float partial[16];
  for (int v = 0; v < kVectors; ++v) Write(sums[v], partial + v * kLanes);
  for (int i = 0; j + i < n; ++i) partial[i] += x[j + i] * y[j + i];
  return SumOf16(partial);
}

}  // namespace
}  // namespace msrec
