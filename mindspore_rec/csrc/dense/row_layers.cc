// SPDX-License-Identifier: Apache-2.0
#include "dense/row_layers.h"

#include <cstring>
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
  ActiveElementwise().gelu(slice.rows(), outputs_[0].width, slice.value(inputs_[0].view),
                           slice.value(outputs_[0]));
}

void Gelu::Backward(const SliceRun& slice) const {
  const Block gradient = slice.gradient(outputs_[0]);
  const int64_t width = outputs_[0].width;
  ActiveElementwise().gelu_gradient(slice.rows(), width, slice.value(inputs_[0].view), gradient);
  ActiveElementwise().add(slice.rows(), width, gradient, slice.gradient(inputs_[0].view));
}

namespace {

constexpr int64_t kMostMasks = int64_t{1} << 32;

}  // namespace

Dropout::Dropout(View input, View output, int masks, int used, int64_t mask_count)
    : masks_(masks), used_(used), mask_count_(mask_count) {
  RequireSameWidth(input, output);
  if (mask_count < 1) throw std::invalid_argument("a dropout needs at least 1 mask");
  if (mask_count > kMostMasks) {
    throw std::invalid_argument("a dropout has at most " + std::to_string(kMostMasks) + " masks");
  }
  extras_ = {{masks, mask_count * output.width}, {used, 1, "int32"}};
  inputs_ = {{input, false}};
  outputs_ = {output};
}

const float* Dropout::Mask(const SliceRun& slice, int64_t row) const {
  const auto* masks = static_cast<const float*>(slice.run().extras[masks_]);
  const int64_t used = *static_cast<const int32_t*>(slice.run().extras[used_]);
  const int64_t mask = (slice.first_row() + row + 1 + used) % mask_count_;
  return masks + (mask < 0 ? mask + mask_count_ : mask) * outputs_[0].width;
}

void Dropout::Forward(const SliceRun& slice) const {
  const int64_t width = outputs_[0].width;
  const Block x = slice.value(inputs_[0].view);
  const Block y = slice.value(outputs_[0]);
  for (int64_t r = 0; r < slice.rows(); ++r) {
    std::memset(y.row(r), 0, sizeof(float) * static_cast<size_t>(width));
    const Block mask{const_cast<float*>(Mask(slice, r)), width};
    ActiveElementwise().add_product(1, width, {x.row(r), 0}, mask, {y.row(r), 0});
  }
}

void Dropout::Backward(const SliceRun& slice) const {
  const int64_t width = outputs_[0].width;
  const Block dy = slice.gradient(outputs_[0]);
  const Block dx = slice.gradient(inputs_[0].view);
  for (int64_t r = 0; r < slice.rows(); ++r) {
    const Block mask{const_cast<float*>(Mask(slice, r)), width};
    ActiveElementwise().add_product(1, width, {dy.row(r), 0}, mask, {dx.row(r), 0});
  }
}

}  // namespace msrec
