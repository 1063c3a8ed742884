// SPDX-License-Identifier: Apache-2.0
#include "rows/bags.h"

namespace msrec {

std::string BagError(const IdView& ids, const BagView& bags) {
  int64_t before = 0;
  for (size_t b = 0; b < bags.offsets.size; ++b) {
    const int64_t offset = bags.offsets[b];
    if (offset < before || offset > static_cast<int64_t>(ids.size) || (b == 0 && offset != 0)) {
      return "offsets must start at 0 and rise to at most the number of ids, " +
             std::to_string(ids.size) + "; offsets[" + std::to_string(b) + "] is " +
             std::to_string(offset);
    }
    before = offset;
  }
  return bags.offsets.size == 0 && ids.size > 0 ? "offsets is empty but there are ids" : "";
}

}  // namespace msrec
