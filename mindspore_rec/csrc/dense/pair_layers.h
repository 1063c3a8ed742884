// SPDX-License-Identifier: Apache-2.0
//
// Layers over pairs of a row's vectors, which lie side by side in the columns of the input.
#pragma once

#include "dense/layer.h"

namespace msrec {

// output = dot products of all pairs (i, j) of vectors, in the order of the lower triangle's rows.
// Pairs have j < i, or j <= i with the diagonal. With `keeps_first`, a copy of the first vector
// comes first.
class PairwiseDots : public Layer {
 public:
  // Throws std::invalid_argument if the widths do not fit.
  PairwiseDots(View input, View output, int64_t vectors, bool diagonal, bool keeps_first);
  bool always_adds() const override { return false; }
  void Forward(const SliceRun& slice) const override;
  void Backward(const SliceRun& slice) const override;

 private:
  View products() const;

  const int64_t vectors_, dim_;
  const bool diagonal_, keeps_first_;
};

// output [fields' dim] = sum of the products of the vectors of all pairs of fields, element by
// element. If the output has one column, it is the sum of these elements.
class FactorizedPairs : public Layer {
 public:
  // Throws std::invalid_argument if the widths do not fit.
  FactorizedPairs(View input, View output, int64_t fields, bool sums);
  bool always_adds() const override { return false; }
  void Forward(const SliceRun& slice) const override;
  void Backward(const SliceRun& slice) const override;

 private:
  const int64_t fields_, dim_;
  const bool sums_;
};

}  // namespace msrec
