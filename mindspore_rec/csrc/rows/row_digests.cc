// SPDX-License-Identifier: Apache-2.0
#include "rows/row_digests.h"

#include <algorithm>
#include <cstring>

#include "rows/kernels.h"
#include "rows/row_values.h"

namespace msrec {

void RowDigestsBase(const int64_t*, const char* const*, size_t, size_t, uint64_t*);
#ifdef MSREC_VECTOR_SETS
void RowDigestsAvx2(const int64_t*, const char* const*, size_t, size_t, uint64_t*);
void RowDigestsAvx512(const int64_t*, const char* const*, size_t, size_t, uint64_t*);
#endif

RowDigestsLoop FindRowDigests(const char* name) {
  if (FindKernels(name) == nullptr) return nullptr;
#ifdef MSREC_VECTOR_SETS
  if (std::strcmp(name, "avx2") == 0) return RowDigestsAvx2;
  if (std::strcmp(name, "avx512") == 0) return RowDigestsAvx512;
#endif
  return RowDigestsBase;
}

RowDigestsLoop ActiveRowDigests() {
  static const RowDigestsLoop active = FindRowDigests(ActiveKernels().name);
  return active;
}

void DigestRows(const RowLayout& layout, const char* const* rows, size_t n, uint64_t* digests) {
  constexpr size_t kBlock = 64;
  const size_t bytes = static_cast<size_t>(layout.dim) * sizeof(float);
  if (layout.value_type != NumberType::kFloat32) {
    float value[kMaxDim];
    for (size_t i = 0; i < n; ++i) {
      ReadValue(layout, rows[i], value);
      digests[i] = RowDigest(Meta(rows[i])->key, value, bytes);
    }
    return;
  }
  const RowDigestsLoop loop = ActiveRowDigests();
  int64_t keys[kBlock];
  const char* values[kBlock];
  for (size_t first = 0; first < n; first += kBlock) {
    const size_t some = std::min(kBlock, n - first);
    for (size_t i = 0; i < some; ++i) {
      keys[i] = Meta(rows[first + i])->key;
      values[i] = rows[first + i] + sizeof(RowMeta);
    }
    loop(keys, values, some, bytes, digests + first);
  }
}

}  // namespace msrec
