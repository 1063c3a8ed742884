// SPDX-License-Identifier: Apache-2.0
#include "dense/scale_groups.h"

#include <stdexcept>

namespace msrec {

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
