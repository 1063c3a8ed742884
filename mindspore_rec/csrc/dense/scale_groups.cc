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
  slice.loops().scale_groups(slice.rows(), groups(), group(), slice.value(inputs_[1].view),
                             slice.value(inputs_[0].view), slice.value(outputs_[0]));
}

void ScaleGroups::Backward(const SliceRun& slice) const {
  const auto of = [&](int i) { return Target{slice.gradient(inputs_[i].view), inputs_[i].adds}; };
  slice.loops().scale_groups_gradient(slice.rows(), groups(), group(), slice.value(inputs_[1].view),
                                      slice.value(inputs_[0].view), slice.gradient(outputs_[0]),
                                      of(1), of(0));
}

// ---------------------------------------------------------------- vectors of numbers

ScaleVectors::ScaleVectors(View numbers, View output, int vectors) : vectors_(vectors) {
  if (numbers.width < 1 || output.width < numbers.width || output.width % numbers.width != 0) {
    throw std::invalid_argument("scaled vectors must have as many columns for each number");
  }
  inputs_ = {{numbers, false}};
  outputs_ = {output};
  parameters_ = {{vectors, 0, output.width}};
}

void ScaleVectors::Attach(DenseProgram* program) {
  sums_ = program->AddPartialSums(outputs_[0].width);
}

Block ScaleVectors::Vectors(const BatchRun& run) const {
  return {const_cast<float*>(run.parameters[vectors_]), 0};
}

void ScaleVectors::Forward(const SliceRun& slice) const {
  slice.loops().scale_groups(slice.rows(), count(), dim(), slice.value(inputs_[0].view),
                             Vectors(slice.run()), slice.value(outputs_[0]));
}

void ScaleVectors::Backward(const SliceRun& slice) const {
  const Target of_numbers{slice.gradient(inputs_[0].view), inputs_[0].adds};
  const Target of_vectors{{slice.partial_sums(sums_), 0}, true};
  slice.loops().scale_groups_gradient(slice.rows(), count(), dim(), slice.value(inputs_[0].view),
                                      Vectors(slice.run()), slice.gradient(outputs_[0]), of_numbers,
                                      of_vectors);
}

void ScaleVectors::Gradient(const BatchRun& run, int64_t, bool adds) const {
  SumPartials(run, sums_, outputs_[0].width, adds, run.parameter_gradients[vectors_]);
}

}  // namespace msrec
