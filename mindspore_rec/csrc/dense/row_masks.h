// SPDX-License-Identifier: Apache-2.0
//
// RowMasks: dropout with masks that were drawn beforehand. Row r of the whole batch, over all
// workers, uses mask (r + 1 + used) mod `count`.
#pragma once

#include <cstdint>
#include <vector>

#include "dense/layer.h"

namespace msrec {

struct RowMasks {
  int masks = -1;     // number of the extra input float32 [count, width], or -1 without dropout
  int used = -1;      // number of the extra input int32 [1]
  int64_t count = 0;  // number of masks

  bool any() const { return masks >= 0; }
  // Returns the extra inputs of a layer that uses the masks. Throws std::invalid_argument unless
  // `count` is in [1, 2^32].
  std::vector<ExtraInput> Extras(int64_t width) const;
  // Returns the masks of a slice's rows, or an empty MaskRows if there are no masks.
  MaskRows Rows(const SliceRun& slice) const;
};

// True if the activation's slope can be computed from the sign of the output, even after dropout or
// rounding. The gradient of a dropped unit is 0 for any slope.
inline bool DropsInPlace(Activation activation) {
  return activation == Activation::kNone || activation == Activation::kRelu ||
         activation == Activation::kLeakyRelu;
}

// Throws std::invalid_argument unless `DropsInPlace` is true for the activation.
void RequireDropsInPlace(Activation activation);

}  // namespace msrec
