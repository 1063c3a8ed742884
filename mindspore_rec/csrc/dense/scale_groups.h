// SPDX-License-Identifier: Apache-2.0
//
// ScaleGroups: groups of columns, each times a number a row, as gates weigh experts.
#pragma once

#include "dense/layer.h"

namespace msrec {

// output = input, each of as many groups of columns as `scales` has columns times its own.
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

// output [rows, numbers * dim] = the vectors of a parameter [numbers, dim], each times the row's
// number.
class ScaleVectors : public Layer {
 public:
  // Throws std::invalid_argument where the output is not as wide as so many vectors of one width.
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
  // The parameter as the same row for each of the batch.
  Block Vectors(const BatchRun& run) const;

  const int vectors_;
  int64_t sums_ = 0;
};

}  // namespace msrec
