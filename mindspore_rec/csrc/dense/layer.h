// SPDX-License-Identifier: Apache-2.0
//
// Layer: one step of a DenseProgram.
#pragma once

#include <vector>

#include "dense/program.h"

namespace msrec {

// A part of a parameter: `size` elements, beginning at element `offset`. The parts of a parameter
// cover the whole parameter and do not overlap.
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
  // Columns that a layer reads. The program sets `adds` if the backward pass of another layer has
  // already written a gradient of these columns. If `adds` is true, the layer adds its gradient to
  // the gradient that is already written. If always_adds() is true, the layer ignores `adds`, and
  // always adds its gradient.
  struct Input {
    View view;
    bool adds = false;
  };

  virtual ~Layer() = default;

  std::vector<Input>& inputs() { return inputs_; }
  const std::vector<View>& outputs() const { return outputs_; }
  // The parameters, or parts of parameters, whose gradients the layer computes.
  const std::vector<ParameterPart>& parameters() const { return parameters_; }
  // The extra inputs that the layer reads.
  const std::vector<ExtraInput>& extras() const { return extras_; }
  // True if the layer only adds to the gradients of its inputs, and never overwrites these
  // gradients. If no other layer has written these gradients before, the program sets the gradients
  // to 0 first.
  virtual bool always_adds() const { return true; }

  // True if the layer uses its inputs only as factors in matrix products.
  virtual bool reads_factors_only() const { return false; }
  // True if the layer can round its output, and the layer's backward pass reads only the rounded
  // output.
  virtual bool can_round_output() const { return false; }

  // True if the backward pass does not read the layer's output, and does not change the gradient of
  // the output.
  virtual bool passes_output() const { return false; }

  // Requests memory from the program. The program calls Attach once, when the layer is added.
  virtual void Attach(DenseProgram*) {}

  // Before the first slice of a forward pass, the program calls Pack once for each of the
  // PackTasks() tasks.
  virtual int64_t PackTasks(const BatchRun&) const { return 0; }
  virtual void Pack(const BatchRun&, int64_t) const {}

  // Rounds the weights in a device's memory. The program calls Prepare before the first slice of a
  // forward pass.
  virtual void Prepare(const BatchRun&) const {}

  // Writes the outputs of a slice.
  virtual void Forward(const SliceRun& slice) const = 0;
  // Computes the gradients of a slice's inputs from the gradients of the slice's outputs, and may
  // overwrite the gradients of the outputs. Adds the slice's part of the parameters' gradients to
  // the slice's partial sums.
  virtual void Backward(const SliceRun& slice) const = 0;

  // Do the layer's work between two stages, on one thread. The program calls these functions only
  // for the last layer of a stage.
  virtual void BetweenForward(const BatchRun&) const {}
  virtual void BetweenBackward(const BatchRun&) const {}

  // After the last slice of a backward pass, the program calls Gradient for each of the
  // GradientTasks() tasks, to write the gradients of the parameters. If `adds` is true, the tasks
  // add to a gradient that other layers have already written.
  virtual int64_t GradientTasks(const BatchRun&) const { return 0; }
  virtual void Gradient(const BatchRun&, int64_t, bool) const {}
  // On a device, DeviceGradient runs after the last slice of a backward pass. DeviceGradient
  // computes the gradients of `device_parts` on the device, from all rows. `Gradient` computes the
  // gradients of the remaining parameters on the host, from partial sums.
  virtual void DeviceGradient(const BatchRun&, bool) const {}
  virtual std::vector<ParameterPart> device_parts() const { return {}; }

 protected:
  std::vector<Input> inputs_;
  std::vector<View> outputs_;
  std::vector<ParameterPart> parameters_;
  std::vector<ExtraInput> extras_;
};

// Adds up the partial sums of all slices, in slice order. A slice's partial sums begin at `column`.
// Writes the sums to `target`, or adds the sums to `target` if `adds` is true.
void SumPartials(const BatchRun& run, int64_t column, int64_t width, bool adds, float* target);

}  // namespace msrec
