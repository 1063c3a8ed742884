// SPDX-License-Identifier: Apache-2.0
#include "dense/mixture_layer.h"

#include <stdexcept>

namespace msrec {

Mixture::Mixture(View units, View gates, View output, int64_t experts, int64_t tasks)
    : shape_{tasks, experts, experts < 1 ? 0 : units.width / experts} {
  if (tasks < 1 || shape_.width < 1 || units.width != experts * shape_.width ||
      gates.width != tasks * experts || output.width != tasks * shape_.width) {
    throw std::invalid_argument("a mixture must have a gate for each task and expert");
  }
  inputs_ = {{units, false}, {gates, false}};
  outputs_ = {output};
}

void Mixture::Forward(const SliceRun& slice) const {
  slice.loops().mix(slice.rows(), shape_, slice.value(inputs_[0].view),
                    slice.value(inputs_[1].view), slice.value(outputs_[0]));
}

void Mixture::Backward(const SliceRun& slice) const {
  const Elementwise& loops = slice.loops();
  const Block units = slice.value(inputs_[0].view);
  const Block gates = slice.value(inputs_[1].view);
  const Block gradient = slice.gradient(outputs_[0]);
  loops.mix_units_gradient(slice.rows(), shape_, gates, gradient, inputs_[0].adds,
                           slice.gradient(inputs_[0].view));
  loops.mix_gates_gradient(slice.rows(), shape_, units, gradient, inputs_[1].adds,
                           slice.gradient(inputs_[1].view));
}

}  // namespace msrec
