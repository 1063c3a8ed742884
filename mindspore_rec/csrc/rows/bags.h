// SPDX-License-Identifier: Apache-2.0
//
// BagView: the bags of a pooled lookup, and the rule that combines the rows of a bag.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "rows/batch.h"

namespace msrec {

enum class Combiner : int32_t { kSum = 0, kMean = 1, kSqrtN = 2 };

// Bags of a pooled lookup: bag b has ids [offset[b], offset[b + 1]). The last bag has all remaining
// ids.
struct BagView {
  IdView offsets;
  const float* weights = nullptr;  // one an id, or null for 1
  Combiner combiner = Combiner::kSum;
};

// Return an error unless offsets rise from 0 to at most the number of ids; "" means no error.
std::string BagError(const IdView& ids, const BagView& bags);

// Return the factor for the sum of a bag's rows. `total` is the sum of the bag's weights, or of
// their squares for kSqrtN.
inline float BagFactor(Combiner combiner, double total) {
  if (combiner == Combiner::kMean) return total != 0.0 ? static_cast<float>(1.0 / total) : 0.0f;
  if (combiner == Combiner::kSqrtN) {
    return total > 0.0 ? static_cast<float>(1.0 / std::sqrt(total)) : 0.0f;
  }
  return 1.0f;
}

}  // namespace msrec
