// SPDX-License-Identifier: Apache-2.0
//
// Layers of the pairs of a row's vectors, which stand side by side in the columns of their input.
#pragma once

#include "dense/layer.h"

namespace msrec {

// output = dot products of all pairs (i, j) of vectors, j < i, or j <= i with the diagonal, in the
// order of the lower triangle's rows; behind a copy of the first vector where `keeps_first`.
class PairwiseDots : public Layer {
 public:
  // Throws std::invalid_argument where the widths do not fit.
  PairwiseDots(View input, View output, int64_t vectors, bool diagonal, bool keeps_first);
  bool always_adds() const override { return false; }
  void Forward(const SliceRun& slice) const override;
  void Backward(const SliceRun& slice) const override;

 private:
  View products() const;

  const int64_t vectors_, dim_;
  const bool diagonal_, keeps_first_;
};

// output [fields' dim] = sum over all pairs of fields of the products of their vectors, unit by
// unit; or, where the output has one column, the sum of these.
class FactorizedPairs : public Layer {
 public:
  // Throws std::invalid_argument where the widths do not fit.
  FactorizedPairs(View input, View output, int64_t fields, bool sums);
  bool always_adds() const override { return false; }
  void Forward(const SliceRun& slice) const override;
  void Backward(const SliceRun& slice) const override;

 private:
  const int64_t fields_, dim_;
  const bool sums_;
};

}  // namespace msrec
