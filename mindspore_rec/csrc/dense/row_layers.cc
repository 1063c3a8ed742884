// SPDX-License-Identifier: Apache-2.0
#include "dense/row_layers.h"

#include <stdexcept>
#include <string>

namespace msrec {
namespace {

void RequireSameWidth(const View& input, const View& output) {
  if (input.width != output.width) {
    throw std::invalid_argument("a layer of " + std::to_string(input.width) + " columns writes " +
                                std::to_string(output.width));
  }
}

}  // namespace

Gelu::Gelu(View input, View output) {
  RequireSameWidth(input, output);
  inputs_ = {{input, false}};
  outputs_ = {output};
}

void Gelu::Forward(const SliceRun& slice) const {
  slice.loops().gelu(slice.rows(), outputs_[0].width, slice.value(inputs_[0].view),
                     slice.value(outputs_[0]));
}

void Gelu::Backward(const SliceRun& slice) const {
  const Block gradient = slice.gradient(outputs_[0]);
  const int64_t width = outputs_[0].width;
  slice.loops().gelu_gradient(slice.rows(), width, slice.value(inputs_[0].view), gradient);
  slice.loops().add(slice.rows(), width, gradient, slice.gradient(inputs_[0].view));
}

Dropout::Dropout(View input, View output, int masks, int used, int64_t mask_count)
    : masks_{masks, used, mask_count} {
  RequireSameWidth(input, output);
  extras_ = masks_.Extras(output.width);
  inputs_ = {{input, false}};
  outputs_ = {output};
}

void Dropout::Forward(const SliceRun& slice) const {
  const int64_t width = outputs_[0].width;
  const Block y = slice.value(outputs_[0]);
  slice.loops().copy(slice.rows(), width, slice.value(inputs_[0].view), y);
  slice.loops().multiply_masks(slice.rows(), width, masks_.Rows(slice), y);
}

void Dropout::Backward(const SliceRun& slice) const {
  const int64_t width = outputs_[0].width;
  const Block dy = slice.gradient(outputs_[0]);
  const Block dx = slice.gradient(inputs_[0].view);
  slice.loops().multiply_masks(slice.rows(), width, masks_.Rows(slice), dy);
  if (inputs_[0].adds) {
    slice.loops().add(slice.rows(), width, dy, dx);
  } else {
    slice.loops().copy(slice.rows(), width, dy, dx);
  }
}

SumGroups::SumGroups(View input, View output) {
  if (output.width < 1 || input.width < output.width || input.width % output.width != 0) {
    throw std::invalid_argument("a sum of groups of " + std::to_string(output.width) +
                                " columns reads " + std::to_string(input.width));
  }
  inputs_ = {{input, false}};
  outputs_ = {output};
}

void SumGroups::Forward(const SliceRun& slice) const {
  const int64_t width = outputs_[0].width;
  const Block x = slice.value(inputs_[0].view);
  const Block y = slice.value(outputs_[0]);
  slice.loops().copy(slice.rows(), width, x, y);
  for (int64_t at = width; at < inputs_[0].view.width; at += width) {
    slice.loops().add(slice.rows(), width, x.columns(at), y);
  }
}

void SumGroups::Backward(const SliceRun& slice) const {
  const int64_t width = outputs_[0].width;
  const Block dy = slice.gradient(outputs_[0]);
  const Block dx = slice.gradient(inputs_[0].view);
  for (int64_t at = 0; at < inputs_[0].view.width; at += width) {
    if (inputs_[0].adds) {
      slice.loops().add(slice.rows(), width, dy, dx.columns(at));
    } else {
      slice.loops().copy(slice.rows(), width, dy, dx.columns(at));
    }
  }
}

}  // namespace msrec
