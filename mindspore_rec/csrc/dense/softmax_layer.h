// SPDX-License-Identifier: Apache-2.0
//
// Softmax: turns scores into weights that sum to 1, in groups of columns.
#pragma once

#include "dense/layer.h"

namespace msrec {

// The output is the softmax of each group of `group` columns of the input.
class Softmax : public Layer {
 public:
  // Throws std::invalid_argument if input and output differ in width, or if the width is not a
  // multiple of `group`.
  Softmax(View input, View output, int64_t group);
  bool always_adds() const override { return false; }
  void Forward(const SliceRun& slice) const override;
  void Backward(const SliceRun& slice) const override;

 private:
  const int64_t group_;
};

}  // namespace msrec
