// SPDX-License-Identifier: Apache-2.0
//
// BagView: the bags of a pooled lookup, and the way in which the rows of a bag are combined.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "rows/batch.h"

namespace msrec {

enum class Combiner : int32_t { kSum = 0, kMean = 1, kSqrtN = 2 };

// Bags of a pooled lookup: bag b consists of the ids at the positions [offset[b], offset[b + 1]).
// The last bag consists of all remaining ids.
struct BagView {
  IdView offsets;
  const float* weights = nullptr;  // one weight per id; null: every weight is 1
  Combiner combiner = Combiner::kSum;
};

// Return an error message unless the offsets begin with 0, never decrease, and are at most the
// number of ids. Offsets may be empty only if there are no ids. Return "" if the offsets are valid.
std::string BagError(const IdView& ids, const BagView& bags);

// Return the factor by which the sum of a bag's rows is multiplied. `total` is the sum of the bag's
// weights or, for kSqrtN, the sum of the squared weights.
inline float BagFactor(Combiner combiner, double total) {
  if (combiner == Combiner::kMean) return total != 0.0 ? static_cast<float>(1.0 / total) : 0.0f;
  if (combiner == Combiner::kSqrtN) {
    return total > 0.0 ? static_cast<float>(1.0 / std::sqrt(total)) : 0.0f;
  }
  return 1.0f;
}

}  // namespace msrec
