// SPDX-License-Identifier: Apache-2.0
#include "ranking/score_tile.h"

#include <algorithm>
#include <cstring>

#include "rows/kernels.h"

namespace msrec {

void ScoreTileBase(const float*, size_t, const float*, size_t, size_t, float*);
#ifdef MSREC_VECTOR_SETS
void ScoreTileAvx2(const float*, size_t, const float*, size_t, size_t, float*);
void ScoreTileAvx512(const float*, size_t, const float*, size_t, size_t, float*);
#endif

ScoreTileLoop FindScoreTile(const char* name) {
  if (FindKernels(name) == nullptr) return nullptr;
#ifdef MSREC_VECTOR_SETS
  if (std::strcmp(name, "avx2") == 0) return ScoreTileAvx2;
  if (std::strcmp(name, "avx512") == 0) return ScoreTileAvx512;
#endif
  return ScoreTileBase;
}

ScoreTileLoop ActiveScoreTile() {
  static const ScoreTileLoop active = FindScoreTile(ActiveKernels().name);
  return active;
}

void PackItems(const float* items, size_t n, size_t dim, float* packed) {
  for (size_t first = 0; first < n; first += kBlockItems) {
    const size_t some = std::min(kBlockItems, n - first);
    float* block = packed + first * dim;
    if (some < kBlockItems) std::fill_n(block, kBlockItems * dim, 0.0f);
    for (size_t i = 0; i < some; ++i) {
      const float* row = items + (first + i) * dim;
      for (size_t d = 0; d < dim; ++d) block[d * kBlockItems + i] = row[d];
    }
  }
}

float ScoreOf(const float* user, const float* item, size_t dim) {
  float sum = 0.0f;
  for (size_t d = 0; d < dim; ++d) sum += user[d] * item[d];
  return sum;
}

}  // namespace msrec
