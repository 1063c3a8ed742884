// SPDX-License-Identifier: Apache-2.0
//
// Layers without parameters that treat each row for itself.
#pragma once

#include "dense/layer.h"

namespace msrec {

// output = gelu(input), in the tanh form.
class Gelu : public Layer {
 public:
  Gelu(View input, View output);
  void Forward(const SliceRun& slice) const override;
  void Backward(const SliceRun& slice) const override;
};

// output = input masks[row], by masks drawn beforehand: row r of the batch takes mask
// (r + 1 + used) mod N.
class Dropout : public Layer {
 public:
  // `masks` and `used` are numbers of further inputs: float32 [N, width], int32 [1].
  Dropout(View input, View output, int masks, int used, int64_t mask_count);
  void Forward(const SliceRun& slice) const override;
  void Backward(const SliceRun& slice) const override;

 private:
  const float* Mask(const SliceRun& slice, int64_t row) const;

  const int masks_;
  const int used_;
  const int64_t mask_count_;
};

}  // namespace msrec
