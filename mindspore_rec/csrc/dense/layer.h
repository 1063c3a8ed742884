// SPDX-License-Identifier: Apache-2.0
//
// Layer: one step of a DenseProgram.
#pragma once

#include <vector>

#include "dense/program.h"

namespace msrec {

// Part of a parameter that begins at an element. The parts of a parameter cover the whole parameter
// and do not overlap.
struct ParameterPart {
  int parameter = -1;
  int64_t offset = 0;
  int64_t size = 0;  // elements

  bool operator<(const ParameterPart& o) const {
    return parameter != o.parameter ? parameter < o.parameter : offset < o.offset;
  }
};

class Layer {
 public:
  // Columns that a layer reads. The program sets `adds` if an earlier part of the backward pass has
  // written a gradient of the columns. The layer then adds to this gradient. A layer with
  // `always_adds` always adds.
  struct Input {
    View view;
    bool adds = false;
  };

  virtual ~Layer() = default;

  std::vector<Input>& inputs() { return inputs_; }
  const std::vector<View>& outputs() const { return outputs_; }
  // Parameters, or parts of them, whose gradients the layer computes.
  const std::vector<ParameterPart>& parameters() const { return parameters_; }
  // The extra inputs that the layer reads.
  const std::vector<ExtraInput>& extras() const { return extras_; }
  // True if the layer adds to its inputs' gradients even when they are still empty.
  virtual bool always_adds() const { return true; }

  // True if the layer reads its inputs only as factors of products.
  virtual bool reads_factors_only() const { return false; }
  // True if the layer can round its own output, and its backward pass reads only the rounded
  // output.
  virtual bool can_round_output() const { return false; }

  // Called once when the layer is added, to request memory from the program.
  virtual void Attach(DenseProgram*) {}

  // Tasks that run before the first slice of a forward pass.
  virtual int64_t PackTasks(const BatchRun&) const { return 0; }
  virtual void Pack(const BatchRun&, int64_t) const {}

  // Rounds the weights on a device, before the first slice of a forward pass.
  virtual void Prepare(const BatchRun&) const {}

  // Writes the outputs of a slice.
  virtual void Forward(const SliceRun& slice) const = 0;
  // Writes or adds the gradients of a slice's inputs from the gradients of its outputs, which the
  // layer may overwrite. Sums for the gradients of parameters go to the slice's partial sums.
  virtual void Backward(const SliceRun& slice) const = 0;

  // Work between stages, on one thread, for a layer at the end of a stage.
  virtual void BetweenForward(const BatchRun&) const {}
  virtual void BetweenBackward(const BatchRun&) const {}

  // Tasks after the last slice of a backward pass, which write the gradients of the parameters. If
  // `adds` is true, other layers have already written these gradients.
  virtual int64_t GradientTasks(const BatchRun&) const { return 0; }
  virtual void Gradient(const BatchRun&, int64_t, bool) const {}
  // On a device, after the last slice of a backward pass: writes or adds the gradients of
  // `device_parts` in the device's memory. The gradients of `device_parts` are computed from all
  // rows. On the host, `Gradient` computes the gradients that come from partial sums.
  virtual void DeviceGradient(const BatchRun&, bool) const {}
  virtual std::vector<ParameterPart> device_parts() const { return {}; }

 protected:
  std::vector<Input> inputs_;
  std::vector<View> outputs_;
  std::vector<ParameterPart> parameters_;
  std::vector<ExtraInput> extras_;
};

// target[j] = or += the sum of the partial sums at `column` over the slices, in their order.
void SumPartials(const BatchRun& run, int64_t column, int64_t width, bool adds, float* target);

}  // namespace msrec
