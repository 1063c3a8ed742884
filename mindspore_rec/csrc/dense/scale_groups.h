// SPDX-License-Identifier: Apache-2.0
//
// ScaleGroups: multiplies each group of columns by one number per row, for example the outputs of
// experts by the numbers of a gate.
#pragma once

#include "dense/layer.h"

namespace msrec {

// The columns of the input are split into as many groups as `scales` has columns. Group i is
// multiplied by column i of `scales`.
class ScaleGroups : public Layer {
 public:
  ScaleGroups(View input, View scales, View output);
  bool always_adds() const override { return false; }
  void Forward(const SliceRun& slice) const override;
  void Backward(const SliceRun& slice) const override;

 private:
  int64_t groups() const { return inputs_[1].view.width; }
  int64_t group() const { return outputs_[0].width / groups(); }
};

// For each row of numbers, multiplies row k of a parameter [numbers, dim] by number k. The output
// is [rows, numbers * dim].
class ScaleVectors : public Layer {
 public:
  // Throws std::invalid_argument if the output's width is not a multiple of the width of `numbers`.
  ScaleVectors(View numbers, View output, int vectors);
  bool always_adds() const override { return false; }
  void Attach(DenseProgram* program) override;
  void Forward(const SliceRun& slice) const override;
  void Backward(const SliceRun& slice) const override;
  int64_t GradientTasks(const BatchRun&) const override { return 1; }
  void Gradient(const BatchRun& run, int64_t task, bool adds) const override;

 private:
  int64_t count() const { return inputs_[0].view.width; }
  int64_t dim() const { return outputs_[0].width / count(); }
  // Returns the parameter as a block with the leading dimension (`ld`) 0, so that all rows of the
  // block are the same.
  Block Vectors(const BatchRun& run) const;

  const int vectors_;
  int64_t sums_ = 0;
};

}  // namespace msrec
