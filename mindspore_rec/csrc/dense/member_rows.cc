// SPDX-License-Identifier: Apache-2.0
#include "dense/member_rows.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace msrec {
namespace {

constexpr int64_t kLeastBlockRows = 64;
constexpr int64_t kMostBlocks = 32;  // each block has sums [members, width]

struct RowBlock {
  int64_t begin, end;
};

// Number of rows in a block.
int64_t BlockRows(int64_t rows) {
  return std::max(kLeastBlockRows, (rows + kMostBlocks - 1) / kMostBlocks);
}

int64_t BlocksOf(int64_t rows) { return (rows + BlockRows(rows) - 1) / BlockRows(rows); }

RowBlock BlockAt(int64_t rows, int64_t block) {
  const int64_t begin = block * BlockRows(rows);
  return {begin, std::min(rows, begin + BlockRows(rows))};
}

}  // namespace

void RepeatRows(const MemberBatch& batch, float* output, ThreadPool* pool) {
  const int64_t width = batch.width;
  pool->ParallelFor(BlocksOf(batch.rows), [&](int64_t block) {
    const RowBlock rows = BlockAt(batch.rows, block);
    for (int64_t k = 0; k < batch.members; ++k) {
      const float* __restrict factors = batch.factors + k * width;
      for (int64_t r = rows.begin; r < rows.end; ++r) {
        const float* __restrict x = batch.x + r * width;
        float* __restrict out = output + (k * batch.rows + r) * width;
        for (int64_t j = 0; j < width; ++j) out[j] = x[j] * factors[j];
      }
    }
  });
}

void RepeatedRowsGradient(const MemberBatch& batch, const float* gradient, float* of_x,
                          float* of_factors, ThreadPool* pool) {
  const int64_t width = batch.width;
  const int64_t blocks = BlocksOf(batch.rows);
  const int64_t floats = batch.members * width;
  std::vector<float> partial(static_cast<size_t>(blocks * floats));
  pool->ParallelFor(blocks, [&](int64_t block) {
    const RowBlock rows = BlockAt(batch.rows, block);
    const auto bytes = sizeof(float) * static_cast<size_t>((rows.end - rows.begin) * width);
    std::memset(of_x + rows.begin * width, 0, bytes);
    for (int64_t k = 0; k < batch.members; ++k) {
      const float* __restrict factors = batch.factors + k * width;
      float* __restrict sums = partial.data() + block * floats + k * width;
      for (int64_t r = rows.begin; r < rows.end; ++r) {
        const float* __restrict g = gradient + (k * batch.rows + r) * width;
        const float* __restrict x = batch.x + r * width;
        float* __restrict below = of_x + r * width;
        for (int64_t j = 0; j < width; ++j) {
          below[j] += g[j] * factors[j];
          sums[j] += g[j] * x[j];
        }
      }
    }
  });
  pool->ParallelFor(batch.members, [&](int64_t k) {
    float* __restrict sums = of_factors + k * width;
    std::memset(sums, 0, sizeof(float) * static_cast<size_t>(width));
    for (int64_t block = 0; block < blocks; ++block) {
      const float* __restrict more = partial.data() + block * floats + k * width;
      for (int64_t j = 0; j < width; ++j) sums[j] += more[j];
    }
  });
}

}  // namespace msrec
