// SPDX-License-Identifier: Apache-2.0
//
// The loop over a tile of scores. Included once by each score_tile_<isa>.cc; it uses no inline
// function of another header.
#include "ranking/score_tile.h"

namespace msrec {
namespace {

#if defined(__AVX512F__)
constexpr size_t kLanes = 16;
#elif defined(__AVX2__)
constexpr size_t kLanes = 8;
#else
constexpr size_t kLanes = 4;
#endif
// Any address of floats may be read as a vector of lanes.
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));

constexpr size_t kUsers = 8;  // whose scores are summed side by side

// Scores of kCount users and of all packed items.
template <size_t kCount>
void ScoreUsers(const float* vectors, const float* packed, size_t blocks, size_t dim,
                float* scores) {
  const size_t items = blocks * kBlockItems;
  for (size_t b = 0; b < blocks; ++b) {
    const float* block = packed + b * kBlockItems * dim;
    for (size_t first = 0; first < kBlockItems; first += kLanes) {
      Lanes sums[kCount] = {};
      for (size_t d = 0; d < dim; ++d) {
        const Lanes item = *reinterpret_cast<const Lanes*>(block + d * kBlockItems + first);
        for (size_t u = 0; u < kCount; ++u) sums[u] += item * vectors[u * dim + d];
      }
      for (size_t u = 0; u < kCount; ++u) {
        *reinterpret_cast<Lanes*>(scores + u * items + b * kBlockItems + first) = sums[u];
      }
    }
  }
}

}  // namespace

void MSREC_SCORE_TILE_SYMBOL(const float* vectors, size_t users, const float* packed, size_t blocks,
                             size_t dim, float* scores) {
  const size_t items = blocks * kBlockItems;
  size_t u = 0;
  for (; u + kUsers <= users; u += kUsers) {
    ScoreUsers<kUsers>(vectors + u * dim, packed, blocks, dim, scores + u * items);
  }
  for (; u < users; ++u) {
    ScoreUsers<1>(vectors + u * dim, packed, blocks, dim, scores + u * items);
  }
}

}  // namespace msrec
