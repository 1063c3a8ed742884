// SPDX-License-Identifier: Apache-2.0
//
// Layers of cross networks. In a cross network, each layer multiplies the network's input by a
// value that is computed from the previous layer's output.
#pragma once

#include <utility>

#include "dense/layer.h"

namespace msrec {

// The last part of a cross layer: computes output = x0 t + x, element by element. Other layers
// compute the input t from x. The inputs x and x0 may be the same value.
class CrossCombine : public Layer {
 public:
  CrossCombine(View x0, View t, View x, View output);
  bool always_adds() const override { return false; }
  void Forward(const SliceRun& slice) const override;
  void Backward(const SliceRun& slice) const override;
};

// All layers of a cross network, x_k+1 = x (x_k w_k) + b_k + x_k. By induction, x_k = alpha_k x +
// b_0 + ... + b_k-1. For each row, alpha_k is a single number.
class CrossVectors : public Layer {
 public:
  // Reads x; writes the output and the products x w_k [rows, layers]. `weight` and `bias` are
  // parameter numbers; both parameters have the shape [layers, width].
  CrossVectors(View x, View output, View products, int weight, int bias);
  bool always_adds() const override { return false; }
  void Attach(DenseProgram* program) override;
  int64_t PackTasks(const BatchRun&) const override { return 1; }
  void Pack(const BatchRun& run, int64_t task) const override;
  void Forward(const SliceRun& slice) const override;
  void Backward(const SliceRun& slice) const override;
  int64_t GradientTasks(const BatchRun& run) const override;
  void Gradient(const BatchRun& run, int64_t task, bool adds) const override;

 private:
  View input() const { return inputs_[0].view; }
  int64_t width() const { return input().width; }
  int64_t layers() const { return outputs_[1].width; }
  CrossRows Packed(const BatchRun& run) const;
  Block FactorOf(const SliceRun& slice) const;

  const int weight_;
  const int bias_;
  bool rounds_ = false;
  int64_t packed_ = 0;  // offset of the sum of the biases, the constants of the layers, and the
                        // rounded weight
  int64_t sums_ = 0;    // column of the gradients of weight, sum of the biases, and constants
};

}  // namespace msrec
