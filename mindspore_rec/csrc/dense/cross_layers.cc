// SPDX-License-Identifier: Apache-2.0
#include "dense/cross_layers.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace msrec {

CrossCombine::CrossCombine(View x0, View t, View x, View output) {
  if (x0.width != output.width || t.width != output.width || x.width != output.width) {
    throw std::invalid_argument("inputs and output of a cross layer must have one width");
  }
  inputs_ = {{x0, false}, {t, false}, {x, false}};
  outputs_ = {output};
}

void CrossCombine::Forward(const SliceRun& slice) const {
  slice.loops().multiply_add(slice.rows(), outputs_[0].width, slice.value(inputs_[0].view),
                             slice.value(inputs_[1].view), slice.value(inputs_[2].view),
                             slice.value(outputs_[0]));
}

void CrossCombine::Backward(const SliceRun& slice) const {
  const auto of = [&](int i) { return Target{slice.gradient(inputs_[i].view), inputs_[i].adds}; };
  slice.loops().cross_combine_gradient(slice.rows(), outputs_[0].width,
                                       slice.value(inputs_[0].view), slice.value(inputs_[1].view),
                                       slice.gradient(outputs_[0]), of(0), of(1), of(2));
}

// ---------------------------------------------------------------- CrossVectors

namespace {

constexpr int64_t kTileColumns = 1024;

}  // namespace

CrossVectors::CrossVectors(View x, View output, View products, int weight, int bias)
    : weight_(weight), bias_(bias) {
  if (output.width != x.width) {
    throw std::invalid_argument("input and output of a cross network must have one width");
  }
  if (products.width < 1 || products.width > kMostCrossLayers) {
    throw std::invalid_argument("a cross network must have 1 to 64 layers");
  }
  inputs_ = {{x, false}};
  outputs_ = {output, products};
  const int64_t size = products.width * x.width;
  parameters_ = {{weight, 0, size}, {bias, 0, size}};
}

void CrossVectors::Attach(DenseProgram* program) {
  rounds_ = program->precision() != Precision::kFloat32;
  const int64_t floats = width() + layers() + (rounds_ ? layers() * width() : 0);
  packed_ = program->AddPacked(sizeof(float) * static_cast<size_t>(floats));
  sums_ = program->AddPartialSums((layers() + 1) * width() + layers());
}

CrossRows CrossVectors::Packed(const BatchRun& run) const {
  const auto* packed = reinterpret_cast<const float*>(run.packed + packed_);
  CrossRows cross;
  cross.width = width();
  cross.layers = layers();
  cross.bias = packed;
  cross.constants = packed + width();
  cross.weight = rounds_ ? packed + width() + layers() : run.parameters[weight_];
  cross.rounds = rounds_;
  return cross;
}

// Computes the constant of each layer: the product of the layer's weight and the sum of the biases
// of the earlier layers.
void CrossVectors::Pack(const BatchRun& run, int64_t) const {
  const float* weight = run.parameters[weight_];
  auto* bias = reinterpret_cast<float*>(run.packed + packed_);
  float* constants = bias + width();
  std::memset(bias, 0, sizeof(float) * static_cast<size_t>(width()));
  for (int64_t k = 0; k < layers(); ++k) {
    double sum = 0;
    for (int64_t j = 0; j < width(); ++j) {
      sum += static_cast<double>(bias[j]) * weight[k * width() + j];
      bias[j] += run.parameters[bias_][k * width() + j];
    }
    constants[k] = static_cast<float>(sum);
  }
  if (!rounds_) return;
  ActiveElementwise().round_to_float(layers(), width(), {const_cast<float*>(weight), width()},
                                     {constants + layers(), width()});
}

// Returns the input x, to be used as a factor of matrix products. If matrix products read rounded
// numbers, returns a rounded copy of x in temporary memory.
Block CrossVectors::FactorOf(const SliceRun& slice) const {
  const Block x = slice.value(input());
  if (!rounds_) return x;
  const int64_t ld = LeadingDimension(width());
  const Block rounded{slice.Temporary(slice.rows() * ld), ld};
  slice.loops().round_to_float(slice.rows(), width(), x, rounded);
  return rounded;
}

void CrossVectors::Forward(const SliceRun& slice) const {
  slice.loops().cross_rows(slice.rows(), Packed(slice.run()), slice.value(input()), FactorOf(slice),
                           slice.value(outputs_[1]), slice.value(outputs_[0]));
}

void CrossVectors::Backward(const SliceRun& slice) const {
  slice.loops().cross_rows_gradient(
      slice.rows(), Packed(slice.run()), slice.value(input()), FactorOf(slice),
      slice.value(outputs_[1]), slice.gradient(outputs_[0]),
      {slice.gradient(input()), inputs_[0].adds}, slice.partial_sums(sums_));
}

int64_t CrossVectors::GradientTasks(const BatchRun&) const {
  return (width() + kTileColumns - 1) / kTileColumns;
}

// Computes the gradients of the weight and the bias in the columns of one task. The bias of layer k
// is a term of the output, and also enters x_j w_j for each later layer j.
void CrossVectors::Gradient(const BatchRun& run, int64_t task, bool adds) const {
  const int64_t from = task * kTileColumns;
  const int64_t columns = std::min(kTileColumns, width() - from);
  const float* weight = run.parameters[weight_] + from;
  const float* bias = run.parameters[bias_] + from;
  float* of_weight = run.parameter_gradients[weight_] + from;
  float* of_bias = run.parameter_gradients[bias_] + from;
  float of_constants[kMostCrossLayers];
  SumPartials(run, sums_ + (layers() + 1) * width(), layers(), false, of_constants);
  float earlier[kTileColumns] = {};
  for (int64_t k = 0; k < layers(); ++k) {
    const int64_t row = k * width();
    SumPartials(run, sums_ + row + from, columns, adds, of_weight + row);
    for (int64_t j = 0; j < columns && run.batch > 0; ++j) {
      of_weight[row + j] += of_constants[k] * earlier[j];
      earlier[j] += bias[row + j];
    }
  }
  float sum[kTileColumns];
  SumPartials(run, sums_ + layers() * width() + from, columns, false, sum);
  for (int64_t k = layers(); k-- > 0;) {
    const int64_t row = k * width();
    for (int64_t j = 0; j < columns; ++j) {
      of_bias[row + j] = (adds ? of_bias[row + j] : 0.0f) + sum[j];
      if (run.batch > 0) sum[j] += of_constants[k] * weight[row + j];
    }
  }
}

}  // namespace msrec
