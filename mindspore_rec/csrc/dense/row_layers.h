// SPDX-License-Identifier: Apache-2.0
//
// Layers that have no parameters and that compute each row of the output from one row of the input.
#pragma once

#include "dense/layer.h"
#include "dense/row_masks.h"

namespace msrec {

// output = gelu(input), in the tanh form.
class Gelu : public Layer {
 public:
  Gelu(View input, View output);
  void Forward(const SliceRun& slice) const override;
  void Backward(const SliceRun& slice) const override;
};

// output = input times the row's mask.
class Dropout : public Layer {
 public:
  // `masks` and `used` are the indexes of two extra inputs. The input `masks` is float32
  // [mask_count, width], and the input `used` is int32 [1].
  Dropout(View input, View output, int masks, int used, int64_t mask_count);
  bool always_adds() const override { return false; }
  void Forward(const SliceRun& slice) const override;
  void Backward(const SliceRun& slice) const override;

 private:
  const RowMasks masks_;
};

// The output is the sum of the input's groups of columns, added from left to right. Each group is
// as wide as the output.
class SumGroups : public Layer {
 public:
  // Throws std::invalid_argument if the input's width is not a multiple of the output's width.
  SumGroups(View input, View output);
  bool always_adds() const override { return false; }
  void Forward(const SliceRun& slice) const override;
  void Backward(const SliceRun& slice) const override;
};

}  // namespace msrec
