// SPDX-License-Identifier: Apache-2.0
#include "sequence/sequence_kernels.h"

#include <cstring>

#include "rows/kernels.h"

namespace msrec {

extern const SequenceKernels kSequenceBase;
#ifdef MSREC_VECTOR_SETS
extern const SequenceKernels kSequenceAvx2;
extern const SequenceKernels kSequenceAvx512;
#endif

const SequenceKernels* FindSequenceKernels(const char* name) {
  if (FindKernels(name) == nullptr) return nullptr;
#ifdef MSREC_VECTOR_SETS
  if (std::strcmp(name, "avx2") == 0) return &kSequenceAvx2;
  if (std::strcmp(name, "avx512") == 0) return &kSequenceAvx512;
#endif
  return &kSequenceBase;
}

const SequenceKernels& ActiveSequenceKernels() {
  static const SequenceKernels& active = *FindSequenceKernels(ActiveKernels().name);
  return active;
}

}  // namespace msrec
