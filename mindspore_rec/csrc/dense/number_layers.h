// SPDX-License-Identifier: Apache-2.0
//
// Layers that compute a vector from each number of a row. The vectors lie side by side in the
// output.
#pragma once

#include "dense/layer.h"

namespace msrec {

// The vector of number k is a curve of `bins` straight pieces. The pieces divide the range from -1
// to 1. The parameter `knots` [numbers, bins + 1, dim] contains the vectors at the ends of the
// pieces. Outside the range, the first or the last piece is extended as a straight line.
class CurvesOfNumbers : public Layer {
 public:
  // Throws std::invalid_argument if there are no bins, or if the output's width is not a multiple
  // of the width of `numbers`.
  CurvesOfNumbers(View numbers, View output, int64_t bins, int knots);
  bool always_adds() const override { return false; }
  void Attach(DenseProgram* program) override;
  void Forward(const SliceRun& slice) const override;
  void Backward(const SliceRun& slice) const override;
  int64_t GradientTasks(const BatchRun&) const override { return inputs_[0].view.width; }
  void Gradient(const BatchRun& run, int64_t task, bool adds) const override;

 private:
  NumberCurves CurvesIn(const BatchRun& run) const;

  const int64_t bins_;
  const int knots_;
  int64_t sums_ = 0;
};

// Parameters of WavesOfNumbers: frequencies [numbers, count], weight [dim, 2 count], bias [dim].
struct WaveParameters {
  int frequencies = -1;
  int weight = -1;
  int bias = -1;
};

// The vector of a number is relu(weight * waves + bias). Each number has `count` frequencies. The
// waves of a number x are sin(2 pi f x) for each frequency f, and then cos(2 pi f x) for each f.
class WavesOfNumbers : public Layer {
 public:
  // Throws std::invalid_argument under the same conditions as CurvesOfNumbers.
  WavesOfNumbers(View numbers, View output, int64_t count, const WaveParameters& parameters);
  bool always_adds() const override { return false; }
  void Attach(DenseProgram* program) override;
  void Forward(const SliceRun& slice) const override;
  void Backward(const SliceRun& slice) const override;
  int64_t GradientTasks(const BatchRun&) const override { return 1; }
  void Gradient(const BatchRun& run, int64_t task, bool adds) const override;

 private:
  NumberWaves WavesIn(const BatchRun& run) const;

  const int64_t count_;
  int64_t sums_ = 0;
};

}  // namespace msrec
