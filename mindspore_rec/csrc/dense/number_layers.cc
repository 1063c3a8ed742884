// SPDX-License-Identifier: Apache-2.0
#include "dense/number_layers.h"

#include <stdexcept>

namespace msrec {
namespace {

void RequireVectors(const View& numbers, const View& output, int64_t each) {
  if (each < 1 || numbers.width < 1 || output.width < numbers.width ||
      output.width % numbers.width != 0) {
    throw std::invalid_argument("vectors of numbers must have as many columns for each number");
  }
}

}  // namespace

// ---------------------------------------------------------------- curves

CurvesOfNumbers::CurvesOfNumbers(View numbers, View output, int64_t bins, int knots)
    : bins_(bins), knots_(knots) {
  RequireVectors(numbers, output, bins);
  inputs_ = {{numbers, false}};
  outputs_ = {output};
  parameters_ = {{knots, 0, output.width * (bins + 1)}};
}

void CurvesOfNumbers::Attach(DenseProgram* program) {
  sums_ = program->AddPartialSums(parameters_[0].size);
}

NumberCurves CurvesOfNumbers::CurvesIn(const BatchRun& run) const {
  const int64_t numbers = inputs_[0].view.width;
  return {numbers, outputs_[0].width / numbers, bins_, run.parameters[knots_]};
}

void CurvesOfNumbers::Forward(const SliceRun& slice) const {
  slice.loops().curves(slice.rows(), CurvesIn(slice.run()), slice.value(inputs_[0].view),
                       slice.value(outputs_[0]));
}

void CurvesOfNumbers::Backward(const SliceRun& slice) const {
  slice.loops().curves_gradient(slice.rows(), CurvesIn(slice.run()), slice.value(inputs_[0].view),
                                slice.gradient(outputs_[0]),
                                {slice.gradient(inputs_[0].view), inputs_[0].adds},
                                slice.partial_sums(sums_));
}

// Computes the gradient of the knots of curve `task`: the sum of the partial sums of all slices.
void CurvesOfNumbers::Gradient(const BatchRun& run, int64_t task, bool adds) const {
  const int64_t floats = parameters_[0].size / inputs_[0].view.width;
  const int64_t from = task * floats;
  SumPartials(run, sums_ + from, floats, adds, run.parameter_gradients[knots_] + from);
}

// ---------------------------------------------------------------- waves

WavesOfNumbers::WavesOfNumbers(View numbers, View output, int64_t count,
                               const WaveParameters& parameters)
    : count_(count) {
  RequireVectors(numbers, output, count);
  const int64_t dim = output.width / numbers.width;
  inputs_ = {{numbers, false}};
  outputs_ = {output};
  parameters_ = {{parameters.frequencies, 0, numbers.width * count},
                 {parameters.weight, 0, dim * 2 * count},
                 {parameters.bias, 0, dim}};
}

void WavesOfNumbers::Attach(DenseProgram* program) {
  sums_ = program->AddPartialSums(parameters_[0].size + parameters_[1].size + parameters_[2].size);
}

NumberWaves WavesOfNumbers::WavesIn(const BatchRun& run) const {
  const int64_t numbers = inputs_[0].view.width;
  return {numbers,
          outputs_[0].width / numbers,
          count_,
          run.parameters[parameters_[0].parameter],
          run.parameters[parameters_[1].parameter],
          run.parameters[parameters_[2].parameter]};
}

void WavesOfNumbers::Forward(const SliceRun& slice) const {
  const NumberWaves waves = WavesIn(slice.run());
  slice.loops().waves(slice.rows(), waves, slice.value(inputs_[0].view),
                      slice.Temporary(NumberWaves::Scratch(waves.dim, count_)),
                      slice.value(outputs_[0]));
}

void WavesOfNumbers::Backward(const SliceRun& slice) const {
  const NumberWaves waves = WavesIn(slice.run());
  slice.loops().waves_gradient(
      slice.rows(), waves, slice.value(inputs_[0].view), slice.value(outputs_[0]),
      slice.gradient(outputs_[0]), slice.Temporary(NumberWaves::Scratch(waves.dim, count_)),
      {slice.gradient(inputs_[0].view), inputs_[0].adds}, slice.partial_sums(sums_));
}

void WavesOfNumbers::Gradient(const BatchRun& run, int64_t, bool adds) const {
  int64_t at = sums_;
  for (const ParameterPart& part : parameters_) {
    SumPartials(run, at, part.size, adds, run.parameter_gradients[part.parameter]);
    at += part.size;
  }
}

}  // namespace msrec
