// SPDX-License-Identifier: Apache-2.0
//
// Attention over one list. Part of sequence_loops.inl, whose rules hold here, too.
//
// Scores are computed for kQueries rows at a time and all keys up to the last of these rows: a
// block of scores, whose rows are `ld` floats apart. A block's row is filled up to a multiple of 16
// keys; elements behind the row's own key count as masked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dense/functions.inl"
#include "dense/small_product.inl"
#include "sequence/attention_form.h"
#include "sequence/sequence_kernels.h"

namespace msrec {
namespace {

constexpr int64_t kQueries = 16;
constexpr int64_t kSums = 16;  // partial sums of a row, whatever the instruction set

MSREC_INLINE int64_t Filled(int64_t n) { return (n + kSums - 1) / kSums * kSums; }

// Distance of rows of keys: a multiple of 16, but of 256 only for long lists it cannot avoid.
MSREC_INLINE int64_t RowOfKeys(int64_t length) {
  const int64_t filled = Filled(length);
  return filled % 256 == 0 ? filled + kSums : filled;
}

// The memory of a list's loops, cut into pieces.
struct AttentionSpace {
  int64_t ld;
  float* keys;     // [width, ld], transposed
  float* values;   // [width, ld], transposed; of the gradient
  float* queries;  // [kQueries, dim], scaled
  float* scores;   // [kQueries, ld]
  float* slopes;   // [kQueries, ld]; of the gradient
  float* bias;     // [kQueries, ld]
  float* total;    // [kQueries, ld]; of the gradient: of the scores of all heads
  float* distant;  // [ld]: bias of the distances length - 1 to 0
  float* of_distant;
  int32_t* buckets;  // [kQueries, ld]
};

int64_t AttentionMemory(const AttentionForm& form, int64_t length) {
  const int64_t width = form.heads * form.dim;
  return RowOfKeys(length) * (2 * width + 5 * kQueries + 2) + kQueries * form.dim;
}

MSREC_INLINE AttentionSpace SpaceOf(const AttentionForm& form, int64_t length, float* memory) {
  const int64_t width = form.heads * form.dim;
  AttentionSpace space;
  space.ld = RowOfKeys(length);
  const int64_t block = kQueries * space.ld;
  space.keys = memory;
  space.values = space.keys + width * space.ld;
  space.scores = space.values + width * space.ld;
  space.slopes = space.scores + block;
  space.bias = space.slopes + block;
  space.total = space.bias + block;
  space.buckets = reinterpret_cast<int32_t*>(space.total + block);
  space.distant = space.total + 2 * block;
  space.of_distant = space.distant + space.ld;
  space.queries = space.of_distant + space.ld;
  return space;
}

// Transposes a block of 4 rows of 4 floats.
MSREC_INLINE void TransposeBlock(const float* from, int64_t from_ld, float* to, int64_t ld) {
  using Four = typename Lanes<4>::Type;
  Four a, b, c, d;
  Read(from, &a);
  Read(from + from_ld, &b);
  Read(from + 2 * from_ld, &c);
  Read(from + 3 * from_ld, &d);
  const Four low_ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Four high_ab = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Four low_cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Four high_cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const Four first = __builtin_shufflevector(low_ab, low_cd, 0, 1, 4, 5);
  const Four second = __builtin_shufflevector(low_ab, low_cd, 2, 3, 6, 7);
  const Four third = __builtin_shufflevector(high_ab, high_cd, 0, 1, 4, 5);
  const Four fourth = __builtin_shufflevector(high_ab, high_cd, 2, 3, 6, 7);
  Write(first, to);
  Write(second, to + ld);
  Write(third, to + 2 * ld);
  Write(fourth, to + 3 * ld);
}

// Writes columns of a list's rows as rows, filled with zeros.
MSREC_INLINE void TransposeRows(int64_t length, int64_t width, const float* from, int64_t from_ld,
                                float* to, int64_t ld) {
  const int64_t rows = length / 4 * 4;
  const int64_t columns = width / 4 * 4;
  for (int64_t j = 0; j < rows; j += 4) {
    for (int64_t c = 0; c < columns; c += 4) {
      TransposeBlock(from + j * from_ld + c, from_ld, to + c * ld + j, ld);
    }
  }
  for (int64_t c = 0; c < width; ++c) {
    float* __restrict row = to + c * ld;
    for (int64_t j = c < columns ? rows : 0; j < length; ++j) row[j] = from[j * from_ld + c];
    for (int64_t j = length; j < Filled(length); ++j) row[j] = 0.0f;
  }
}

MSREC_INLINE void SetZero(float* x, int64_t n) {
  __builtin_memset(x, 0, sizeof(float) * static_cast<size_t>(n));
}

// Writes the 16 partial sums of a filled row.
MSREC_INLINE void PartialSums(const float* x, int64_t filled, float* partial) {
  using V = typename Lanes<kLanes>::Type;
  constexpr int kVectors = static_cast<int>(kSums) / kLanes;
  V sums[kVectors] = {};
  for (int64_t j = 0; j < filled; j += kSums) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      V part;
      Read(x + j + v * kLanes, &part);
      sums[v] += part;
    }
  }
  for (int v = 0; v < kVectors; ++v) Write(sums[v], partial + v * kLanes);
}

// Sum of a filled row, by 16 partial sums.
MSREC_INLINE float RowSum(const float* x, int64_t filled) {
  float partial[kSums];
  PartialSums(x, filled, partial);
  return SumOf16(partial);
}

MSREC_INLINE float RowMost(const float* x, int64_t filled) {
  float most[kSums];
  for (int64_t l = 0; l < kSums; ++l) most[l] = x[l];
  for (int64_t j = kSums; j < filled; j += kSums) {
    for (int64_t l = 0; l < kSums; ++l) most[l] = x[j + l] > most[l] ? x[j + l] : most[l];
  }
  for (int64_t half = kSums / 2; half > 0; half /= 2) {
    for (int64_t l = 0; l < half; ++l)
      most[l] = most[l + half] > most[l] ? most[l + half] : most[l];
  }
  return most[0];
}

// Replaces the scores of n keys by exp(score - largest) and returns the sum.
MSREC_INLINE float ExpRow(float* row_in, int64_t n) {
  float* __restrict row = row_in;
  const int64_t filled = Filled(n);
  for (int64_t j = n; j < filled; ++j) row[j] = -Infinity();
  const float most = RowMost(row, filled);
  for (int64_t j = 0; j < filled; ++j) row[j] = Exp(row[j] - most);
  return RowSum(row, filled);
}

void SoftmaxList(int64_t n, float* scores) {
  if (n == 0) return;
  float most = scores[0];
  for (int64_t j = 1; j < n; ++j) most = scores[j] > most ? scores[j] : most;
  float* __restrict row = scores;
  for (int64_t j = 0; j < n; ++j) row[j] = Exp(row[j] - most);
  float sum = 0.0f;
  for (int64_t j = 0; j < n; ++j) sum += row[j];
  const float scale = 1.0f / sum;
  for (int64_t j = 0; j < n; ++j) row[j] *= scale;
}

// The buckets of the differences of times of a row's query and n keys.
MSREC_INLINE void BucketRow(int64_t n, const int64_t* times, int64_t buckets, int32_t* row_out) {
  int32_t* __restrict row = row_out;
  const uint64_t now = static_cast<uint64_t>(times[n - 1]);
  const int64_t most = buckets - 1;
  for (int64_t j = 0; j < n; ++j) {
    const int64_t difference = static_cast<int64_t>(now - static_cast<uint64_t>(times[j]));
    // The exponent of a double is exact, as buckets end far below its 53 bits.
    const double positive = static_cast<double>(difference > 0 ? difference : 0);
    int64_t bits;
    __builtin_memcpy(&bits, &positive, sizeof(bits));
    const int64_t place = (bits >> 52) - 1022;
    const int64_t above = place > 0 ? place : 0;
    row[j] = static_cast<int32_t>(above < most ? above : most);
  }
}

MSREC_INLINE bool HasBias(const AttentionForm& form) {
  return form.by_distance != nullptr || form.by_time != nullptr;
}

// The bias of distances, laid out so that the bias of a row is a piece of it.
MSREC_INLINE void LayDistances(const AttentionForm& form, int64_t length,
                               const AttentionSpace& space) {
  if (form.by_distance == nullptr) return;
  for (int64_t j = 0; j < length; ++j) {
    const int64_t distance = length - 1 - j;
    space.distant[j] = form.by_distance[distance < form.distances ? distance : form.distances - 1];
  }
}

// Writes the bias of a block of rows that begins at row `first`.
MSREC_INLINE void BiasBlock(const AttentionForm& form, const AttentionList& list, int64_t first,
                            int64_t rows, const AttentionSpace& space) {
  if (!HasBias(form)) return;
  const int64_t filled = Filled(first + rows);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t n = first + r + 1;
    float* __restrict row = space.bias + r * space.ld;
    if (form.by_distance != nullptr) {
      const float* __restrict from = space.distant + (list.length - n);
      for (int64_t j = 0; j < n; ++j) row[j] = from[j];
    } else {
      SetZero(row, n);
    }
    if (form.by_time != nullptr) {
      int32_t* __restrict buckets = space.buckets + r * space.ld;
      BucketRow(n, list.times, form.buckets, buckets);
      const float* __restrict table = form.by_time;
      for (int64_t j = 0; j < n; ++j) row[j] += table[buckets[j]];
    }
    SetZero(row + n, filled - n);
  }
}

// Writes the scores of a block for one head.
MSREC_INLINE void ScoreBlock(const AttentionForm& form, const AttentionList& list, int64_t head,
                             int64_t first, int64_t rows, const AttentionSpace& space) {
  const int64_t dim = form.dim;
  const int64_t ld = space.ld;
  const int64_t filled = Filled(first + rows);
  const int64_t from_ld = 3 * form.heads * dim;
  for (int64_t r = 0; r < rows; ++r) {
    const float* __restrict from = list.qkv + (first + r) * from_ld + head * dim;
    float* __restrict to = space.queries + r * dim;
    for (int64_t c = 0; c < dim; ++c) to[c] = from[c] * form.score_scale;
  }
  const bool adds = HasBias(form);
  if (adds) {
    for (int64_t r = 0; r < rows; ++r) {
      __builtin_memcpy(space.scores + r * ld, space.bias + r * ld,
                       sizeof(float) * static_cast<size_t>(filled));
    }
  }
  SmallProduct(rows, filled, dim, {space.queries, dim, 1}, space.keys + head * dim * ld, ld, adds,
               space.scores, ld);
}

void AttendList(const AttentionForm& form, const AttentionList& list, float* output,
                float* memory) {
  const int64_t dim = form.dim;
  const int64_t width = form.heads * dim;
  const int64_t from_ld = 3 * width;
  const AttentionSpace space = SpaceOf(form, list.length, memory);
  const int64_t ld = space.ld;
  TransposeRows(list.length, width, list.qkv + width, from_ld, space.keys, ld);
  LayDistances(form, list.length, space);
  for (int64_t first = 0; first < list.length; first += kQueries) {
    const int64_t rows = list.length - first < kQueries ? list.length - first : kQueries;
    const int64_t keys = first + rows;
    BiasBlock(form, list, first, rows, space);
    for (int64_t head = 0; head < form.heads; ++head) {
      ScoreBlock(form, list, head, first, rows, space);
      float scales[kQueries];
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t n = first + r + 1;
        float* __restrict row = space.scores + r * ld;
        if (form.kind == Attention::kSoftmax) {
          scales[r] = 1.0f / ExpRow(row, n);
        } else {
          for (int64_t j = 0; j < Filled(n); ++j) row[j] = row[j] * Sigmoid(row[j]);
          scales[r] = form.weight_scale;
        }
        SetZero(row + n, keys - n);
      }
      float* to = output + first * width + head * dim;
      SmallProduct(rows, dim, keys, {space.scores, ld, 1}, list.qkv + 2 * width + head * dim,
                   from_ld, false, to, width);
      for (int64_t r = 0; r < rows; ++r) {
        float* __restrict row = to + r * width;
        for (int64_t c = 0; c < dim; ++c) row[c] *= scales[r];
      }
    }
  }
}

// From scores, and the slopes of weights, makes weights, and the slopes of scores.
MSREC_INLINE void SlopeRow(const AttentionForm& form, int64_t n, int64_t keys, float* scores,
                           float* slopes) {
  float* __restrict row = scores;
  float* __restrict slope = slopes;
  const int64_t filled = Filled(n);
  if (form.kind == Attention::kSoftmax) {
    const float scale = 1.0f / ExpRow(row, n);
    for (int64_t j = 0; j < filled; ++j) row[j] *= scale;
    const float mean = Dot(filled, row, slope);
    for (int64_t j = 0; j < filled; ++j) slope[j] = row[j] * (slope[j] - mean);
  } else {
    const float scale = form.weight_scale;
    for (int64_t j = 0; j < filled; ++j) {
      const float score = row[j];
      const float sigmoid = Sigmoid(score);
      row[j] = score * sigmoid * scale;
      slope[j] *= scale * (sigmoid + score * sigmoid * (1.0f - sigmoid));
    }
  }
  SetZero(row + n, keys - n);
  SetZero(slope + n, Filled(keys) - n);
}

// Adds the slopes of a block's scores, of all heads, to the sums of the biases.
MSREC_INLINE void AddBiasSlopes(const AttentionForm& form, int64_t length, int64_t first,
                                int64_t rows, const AttentionSpace& space,
                                const AttentionSums& sums) {
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t n = first + r + 1;
    const float* __restrict total = space.total + r * space.ld;
    if (form.by_distance != nullptr) {
      float* __restrict to = space.of_distant + (length - n);
      for (int64_t j = 0; j < n; ++j) to[j] += total[j];
    }
    if (form.by_time != nullptr) {
      const int32_t* buckets = space.buckets + r * space.ld;
      // A lane for every 16th key: no sum waits for the one before it.
      for (int64_t j = 0; j < n; ++j) {
        sums.by_time[(j % kTimeLanes) * form.buckets + buckets[j]] += total[j];
      }
    }
  }
}

void AttendListGradient(const AttentionForm& form, const AttentionList& list,
                        const float* of_output, float* of_qkv, const AttentionSums& sums,
                        float* memory) {
  const int64_t dim = form.dim;
  const int64_t width = form.heads * dim;
  const int64_t from_ld = 3 * width;
  const AttentionSpace space = SpaceOf(form, list.length, memory);
  const int64_t ld = space.ld;
  TransposeRows(list.length, width, list.qkv + width, from_ld, space.keys, ld);
  TransposeRows(list.length, width, list.qkv + 2 * width, from_ld, space.values, ld);
  LayDistances(form, list.length, space);
  if (form.by_distance != nullptr) SetZero(space.of_distant, list.length);
  SetZero(of_qkv, list.length * from_ld);
  for (int64_t first = 0; first < list.length; first += kQueries) {
    const int64_t rows = list.length - first < kQueries ? list.length - first : kQueries;
    const int64_t keys = first + rows;
    const int64_t filled = Filled(keys);
    BiasBlock(form, list, first, rows, space);
    if (HasBias(form)) SetZero(space.total, rows * ld);
    for (int64_t head = 0; head < form.heads; ++head) {
      ScoreBlock(form, list, head, first, rows, space);
      const float* of_rows = of_output + first * width + head * dim;
      SmallProduct(rows, filled, dim, {of_rows, width, 1}, space.values + head * dim * ld, ld,
                   false, space.slopes, ld);
      for (int64_t r = 0; r < rows; ++r) {
        SlopeRow(form, first + r + 1, keys, space.scores + r * ld, space.slopes + r * ld);
      }
      if (HasBias(form)) {
        for (int64_t i = 0; i < rows; ++i) {
          float* __restrict to = space.total + i * ld;
          const float* __restrict slope = space.slopes + i * ld;
          for (int64_t j = 0; j < filled; ++j) to[j] += slope[j];
        }
      }
      float* of_head = of_qkv + head * dim;
      SmallProduct(keys, dim, rows, {space.scores, 1, ld}, of_rows, width, true,
                   of_head + 2 * width, from_ld);
      SmallProduct(keys, dim, rows, {space.slopes, 1, ld}, space.queries, dim, true,
                   of_head + width, from_ld);
      float* of_queries = of_head + first * from_ld;
      SmallProduct(rows, dim, keys, {space.slopes, ld, 1}, list.qkv + width + head * dim, from_ld,
                   false, of_queries, from_ld);
      for (int64_t r = 0; r < rows; ++r) {
        float* __restrict row = of_queries + r * from_ld;
        for (int64_t c = 0; c < dim; ++c) row[c] *= form.score_scale;
      }
    }
    if (HasBias(form)) AddBiasSlopes(form, list.length, first, rows, space, sums);
  }
  if (form.by_distance != nullptr) {
    for (int64_t j = 0; j < list.length; ++j) {
      const int64_t distance = list.length - 1 - j;
      sums.by_distance[distance < form.distances ? distance : form.distances - 1] +=
          space.of_distant[j];
    }
  }
}

}  // namespace
}  // namespace msrec
