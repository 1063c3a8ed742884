// SPDX-License-Identifier: Apache-2.0
//
// Layers over pairs of vectors. The vectors of a row lie side by side in the columns of the input.
#pragma once

#include "dense/layer.h"

namespace msrec {

// The output consists of the dot products of the pairs (i, j) of vectors with j < i or, if
// `diagonal` is true, with j <= i. The pairs are sorted by i, then by j. If `keeps_first` is true,
// the output begins with a copy of the first vector.
class PairwiseDots : public Layer {
 public:
  // Throws std::invalid_argument if the widths of input and output do not match.
  PairwiseDots(View input, View output, int64_t vectors, bool diagonal, bool keeps_first);
  bool always_adds() const override { return false; }
  void Forward(const SliceRun& slice) const override;
  void Backward(const SliceRun& slice) const override;

 private:
  View products() const;

  const int64_t vectors_, dim_;
  const bool diagonal_, keeps_first_;
};

// The vectors of each pair of fields are multiplied element by element, and the output [dim] is the
// sum of the products of all pairs. If `sums` is true, the dim elements are added up, and the
// output is one column.
class FactorizedPairs : public Layer {
 public:
  // Throws std::invalid_argument if the widths of input and output do not match.
  FactorizedPairs(View input, View output, int64_t fields, bool sums);
  bool always_adds() const override { return false; }
  void Forward(const SliceRun& slice) const override;
  void Backward(const SliceRun& slice) const override;

 private:
  const int64_t fields_, dim_;
  const bool sums_;
};

}  // namespace msrec
