// SPDX-License-Identifier: Apache-2.0
#include "dense/softmax_layer.h"

#include <stdexcept>

namespace msrec {

Softmax::Softmax(View input, View output, int64_t group) : group_(group) {
  if (group < 1 || input.width != output.width || input.width % group != 0) {
    throw std::invalid_argument("softmax must have as many columns as its input, in whole groups");
  }
  inputs_ = {{input, false}};
  outputs_ = {output};
}

void Softmax::Forward(const SliceRun& slice) const {
  const Block y = slice.value(outputs_[0]);
  const int64_t width = outputs_[0].width;
  slice.loops().copy(slice.rows(), width, slice.value(inputs_[0].view), y);
  slice.loops().softmax(slice.rows(), width / group_, group_, y);
}

void Softmax::Backward(const SliceRun& slice) const {
  const Block gradient = slice.gradient(outputs_[0]);
  const Block target = slice.gradient(inputs_[0].view);
  const int64_t width = outputs_[0].width;
  slice.loops().softmax_gradient(slice.rows(), width / group_, group_, slice.value(outputs_[0]),
                                 gradient);
  if (inputs_[0].adds) {
    slice.loops().add(slice.rows(), width, gradient, target);
  } else {
    slice.loops().copy(slice.rows(), width, gradient, target);
  }
}

}  // namespace msrec
