// SPDX-License-Identifier: Apache-2.0
//
// ScaleGroups: groups of columns, each times a number a row, as gates weigh experts.
#pragma once

#include "dense/layer.h"

namespace msrec {

// output = input, each of as many groups of columns as `scales` has columns times its own.
class ScaleGroups : public Layer {
 public:
  ScaleGroups(View input, View scales, View output);
  bool always_adds() const override { return false; }
  void Forward(const SliceRun& slice) const override;
  void Backward(const SliceRun& slice) const override;

 private:
  int64_t groups() const { return inputs_[1].view.width; }
  int64_t group() const { return outputs_[0].width / groups(); }
};

}  // namespace msrec
