// SPDX-License-Identifier: Apache-2.0
#include "dense/elementwise.h"

#include <cstring>

#include "rows/kernels.h"

namespace msrec {

extern const Elementwise kElementwiseBase;
#ifdef MSREC_VECTOR_SETS
extern const Elementwise kElementwiseAvx2;
extern const Elementwise kElementwiseAvx512;
#endif

const Elementwise* FindElementwise(const char* name) {
  if (FindKernels(name) == nullptr) return nullptr;
#ifdef MSREC_VECTOR_SETS
  if (std::strcmp(name, "avx2") == 0) return &kElementwiseAvx2;
  if (std::strcmp(name, "avx512") == 0) return &kElementwiseAvx512;
#endif
  return &kElementwiseBase;
}

const Elementwise& ActiveElementwise() {
  static const Elementwise& active = *FindElementwise(ActiveKernels().name);
  return active;
}

}  // namespace msrec
