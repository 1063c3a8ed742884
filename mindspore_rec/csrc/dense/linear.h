// SPDX-License-Identifier: Apache-2.0
//
// Linear: computes output = a(x W^T + b), in perceptrons, gates and low-rank experts.
#pragma once

#include "dense/layer.h"
#include "dense/row_masks.h"

namespace msrec {

// A matrix that is a whole parameter or a part of a parameter.
struct Weight {
  int parameter = -1;
  int64_t offset = 0;        // number of elements of the parameter before the matrix
  bool input_major = false;  // true if stored as [in, out], false if stored as [out, in]
};

struct Bias {
  int parameter = -1;  // -1: none
  int64_t offset = 0;
};

class Linear : public Layer {
 public:
  // Reads `input`, writes `output`. The activation must not be gelu, because the gradient of gelu
  // needs the input of gelu. If there are masks, the layer applies dropout to the output, and
  // `DropsInPlace(activation)` must be true.
  Linear(View input, View output, Weight weight, Bias bias, Activation activation,
         RowMasks masks = {});

  bool always_adds() const override { return false; }
  bool reads_factors_only() const override { return true; }
  bool can_round_output() const override;
  bool passes_output() const override;
  void Attach(DenseProgram* program) override;
  void Prepare(const BatchRun& run) const override;
  int64_t PackTasks(const BatchRun& run) const override;
  void Pack(const BatchRun& run, int64_t task) const override;
  void Forward(const SliceRun& slice) const override;
  void Backward(const SliceRun& slice) const override;
  int64_t GradientTasks(const BatchRun& run) const override;
  void Gradient(const BatchRun& run, int64_t task, bool adds) const override;
  void DeviceGradient(const BatchRun& run, bool adds) const override;
  std::vector<ParameterPart> device_parts() const override { return {parameters_[0]}; }

 private:
  enum class Pass { kForward, kBackward };
  struct Tile {
    int64_t row, rows, column, columns;
  };

  // True if the weight is packed. A prediction of a single slice reads the weight only once, so
  // packing the weight would not pay.
  bool Packs(const BatchRun& run) const;
  // Returns the shape of the product for a slice. Forward: output [rows, out] = input [rows, in] *
  // W^T. Backward: input_gradient [rows, in] = output_gradient [rows, out] * W.
  ProductShape Shape(Pass pass, int64_t rows, int64_t lda, int64_t ldc) const;
  void Multiply(const SliceRun& slice, Pass pass, const Factor& from, const Block& to) const;
  // Returns the weight in the form that matrix products on a device read.
  Factor DeviceWeight(const BatchRun& run) const;
  int64_t rounded_ld() const { return (weight_ld() + 7) / 8 * 8; }
  void Activate(const SliceRun& slice) const;
  // Multiplies the gradient of the output by the masks.
  void MaskGradient(const SliceRun& slice) const;
  // Multiplies the gradient of the output by the activation's slope, and rounds the result for
  // matrix products.
  void ActivationGradient(const SliceRun& slice) const;
  // Number of tiles of the weight's gradient.
  int64_t WeightTiles(const BatchRun& run) const;
  Tile TileOf(const BatchRun& run, int64_t task) const;
  void WeightGradient(const BatchRun& run, const Tile& tile, bool adds) const;

  View input() const { return inputs_[0].view; }
  View output() const { return outputs_[0]; }
  int64_t weight_ld() const { return weight_.input_major ? output().width : input().width; }
  // Numbers of rows and columns of the stored weight.
  int64_t weight_rows() const { return weight_.input_major ? input().width : output().width; }
  int64_t weight_columns() const { return weight_ld(); }

  const Weight weight_;
  const Bias bias_;
  const Activation activation_;
  const RowMasks masks_;
  FactorType type_ = FactorType::kFloat32;
  Precision precision_ = Precision::kFloat32;
  int64_t forward_pack_ = 0;
  int64_t backward_pack_ = 0;
  int64_t rounded_ = 0;
  int64_t bias_sums_ = 0;
};

}  // namespace msrec
