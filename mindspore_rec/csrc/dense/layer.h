// SPDX-License-Identifier: Apache-2.0
//
// Layer: one step of a DenseProgram.
#pragma once

#include <vector>

#include "dense/program.h"

namespace msrec {

// A parameter from an element on. The parts of a parameter are all of it, and do not overlap.
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
  // Columns that a layer reads. The program sets `adds` where an earlier part of the backward pass
  // has left a gradient there, to which the layer must add; a layer with `always_adds` always adds.
  struct Input {
    View view;
    bool adds = false;
  };

  virtual ~Layer() = default;

  std::vector<Input>& inputs() { return inputs_; }
  const std::vector<View>& outputs() const { return outputs_; }
  // Parameters, or parts of them, whose gradients the layer computes.
  const std::vector<ParameterPart>& parameters() const { return parameters_; }
  // The further inputs that the layer reads.
  const std::vector<ExtraInput>& extras() const { return extras_; }
  // Whether the layer adds to its inputs' gradients even where there is none yet.
  virtual bool always_adds() const { return true; }

  // Whether the layer reads its inputs as factors of products alone.
  virtual bool reads_factors_only() const { return false; }
  // Whether the layer can round its output itself, and needs no other form of it in its backward
  // pass.
  virtual bool can_round_output() const { return false; }

  // Called once when the layer is added: asks the program for memory.
  virtual void Attach(DenseProgram*) {}

  // Tasks before the first slice of a forward pass.
  virtual int64_t PackTasks(const BatchRun&) const { return 0; }
  virtual void Pack(const BatchRun&, int64_t) const {}

  // On a device, before the first slice of a forward pass: rounds the weights.
  virtual void Prepare(const BatchRun&) const {}

  // Writes the outputs of a slice.
  virtual void Forward(const SliceRun& slice) const = 0;
  // Writes or adds the gradients of a slice's inputs, from the gradients of its outputs, which it
  // may overwrite. What it adds up for parameters goes to the slice's partial sums.
  virtual void Backward(const SliceRun& slice) const = 0;

  // For a layer at the end of a stage: work between stages, on one thread.
  virtual void BetweenForward(const BatchRun&) const {}
  virtual void BetweenBackward(const BatchRun&) const {}

  // Tasks after the last slice of a backward pass: write the gradients of the parameters; where
  // `adds`, other layers have written them before.
  virtual int64_t GradientTasks(const BatchRun&) const { return 0; }
  virtual void Gradient(const BatchRun&, int64_t, bool) const {}
  // On a device, after the last slice of a backward pass: writes or adds the gradients that are
  // made of all rows, of `device_parts`, in the device's memory. What `Gradient` makes of partial
  // sums is made on the host.
  virtual void DeviceGradient(const BatchRun&, bool) const {}
  virtual std::vector<ParameterPart> device_parts() const { return {}; }

 protected:
  std::vector<Input> inputs_;
  std::vector<View> outputs_;
  std::vector<ParameterPart> parameters_;
  std::vector<ExtraInput> extras_;
};

// target[j] = sum over slices, in their order, of the partial sums at `column`, or += it.
void SumPartials(const BatchRun& run, int64_t column, int64_t width, bool adds, float* target);

}  // namespace msrec
