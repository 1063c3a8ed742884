// SPDX-License-Identifier: Apache-2.0
//
// The loop over rows' digests. Included once by each row_digests_<isa>.cc; it uses only functions
// that are always inlined.
#include "rows/row_digest.h"

namespace msrec {

void MSREC_ROW_DIGESTS_SYMBOL(const int64_t* keys, const char* const* values, size_t n,
                              size_t bytes, uint64_t* digests) {
  for (size_t i = 0; i < n; ++i) digests[i] = RowDigest(keys[i], values[i], bytes);
}

}  // namespace msrec
