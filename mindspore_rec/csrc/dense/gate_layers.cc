// SPDX-License-Identifier: Apache-2.0
#include "dense/gate_layers.h"

#include <cstring>
#include <stdexcept>

namespace msrec {
namespace {

void CopyRows(const Block& from, int64_t rows, int64_t width, const Block& to) {
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(to.row(r), from.row(r), sizeof(float) * static_cast<size_t>(width));
  }
}

}  // namespace

Softmax::Softmax(View input, View output, int64_t group) : group_(group) {
  if (output.width != input.width || group < 1 || input.width % group != 0) {
    throw std::invalid_argument("a softmax must have groups of one size, and its input's width");
  }
  inputs_ = {{input, false}};
  outputs_ = {output};
}

void Softmax::Forward(const SliceRun& slice) const {
  const int64_t width = outputs_[0].width;
  const Block y = slice.value(outputs_[0]);
  CopyRows(slice.value(inputs_[0].view), slice.rows(), width, y);
  ActiveElementwise().softmax(slice.rows(), width / group_, group_, y);
}

void Softmax::Backward(const SliceRun& slice) const {
  const int64_t width = outputs_[0].width;
  const Block gradient = slice.gradient(outputs_[0]);
  const Block below = slice.gradient(inputs_[0].view);
  ActiveElementwise().softmax_gradient(slice.rows(), width / group_, group_,
                                       slice.value(outputs_[0]), gradient);
  if (inputs_[0].adds) {
    ActiveElementwise().add(slice.rows(), width, gradient, below);
  } else {
    CopyRows(gradient, slice.rows(), width, below);
  }
}

ScaleGroups::ScaleGroups(View input, View scales, View output) {
  if (output.width != input.width || scales.width < 1 || input.width % scales.width != 0) {
    throw std::invalid_argument("scales must divide the width of what they scale");
  }
  inputs_ = {{input, false}, {scales, false}};
  outputs_ = {output};
}

void ScaleGroups::Forward(const SliceRun& slice) const {
  ActiveElementwise().scale_groups(slice.rows(), groups(), group(), slice.value(inputs_[1].view),
                                   slice.value(inputs_[0].view), slice.value(outputs_[0]));
}

void ScaleGroups::Backward(const SliceRun& slice) const {
  const auto of = [&](int i) { return Target{slice.gradient(inputs_[i].view), inputs_[i].adds}; };
  ActiveElementwise().scale_groups_gradient(
      slice.rows(), groups(), group(), slice.value(inputs_[1].view), slice.value(inputs_[0].view),
      slice.gradient(outputs_[0]), of(1), of(0));
}

}  // namespace msrec
