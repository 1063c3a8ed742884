// SPDX-License-Identifier: Apache-2.0
#include "dense/linear.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "dense/rows.h"
#include "util/aligned.h"

namespace msrec {
namespace {

// Shape of a tile of a weight's gradient. `depth` is the number of batch rows in one product.
struct TileShape {
  int64_t rows, columns, depth;
};

// Returns the fastest tile shape. oneDNN copies both factors of each product. In float32, oneDNN
// copies the factors fastest if 128 x 256 numbers of the left factor stay in the cache. Each tile
// reads the whole batch, so tiles are wide if the batch does not fit into the cache.
TileShape TileFor(FactorType type, int64_t batch) {
  constexpr int64_t kLargeBatch = 8192;
  if (type == FactorType::kFloat32) return {128, 1024, 256};
  if (batch < kLargeBatch) return {256, 256, kLargeBatch};
  return {256, 1024, 256};
}

int64_t Tiles(int64_t n, int64_t tile) { return (n + tile - 1) / tile; }

// Returns an upper bound of the size of a packed weight in any layout of oneDNN: rows and columns
// are rounded up to whole blocks.
size_t PackedBound(int64_t in, int64_t out) {
  const auto rounded = [](int64_t n) { return (n + 63) / 64 * 64 + 32; };
  return sizeof(float) * static_cast<size_t>(rounded(in) * rounded(out)) + 4096;
}

std::shared_ptr<const Product> FindPacked(const ProductShape& shape, size_t bound) {
  auto product = OneDnn::Find(shape);
  if (product->packed_bytes() > bound) throw std::logic_error("a packed weight is too large");
  return product;
}

// A matrix that is multiplied by another matrix, and consists of the rows of all slices of a batch.
// If the last slice has padding rows, the last slice may be in separate memory.
class BatchFactor {
 public:
  template <typename FactorOf>
  BatchFactor(const BatchRun& run, int64_t width, const FactorOf& factor_of)
      : width_(width),
        before_last_((run.slices - 1) * run.slice_rows),
        whole_(factor_of(SliceRun(run, 0, nullptr))),
        last_(factor_of(SliceRun(run, run.slices - 1, nullptr))) {}

  int64_t ld() const { return whole_.ld; }

  // Returns the rows [first, first + count). If the requested rows are not in one matrix, copies
  // the rows to `memory`.
  Factor Rows(int64_t first, int64_t count, size_t element, AlignedMemory* memory) const {
    const size_t row_bytes = element * static_cast<size_t>(ld());
    const auto at = [&](const Factor& factor, int64_t row) {
      return static_cast<const char*>(factor.data) + row_bytes * static_cast<size_t>(row);
    };
    if (first + count <= before_last_ || last_.data == at(whole_, before_last_)) {
      return {at(whole_, first), ld()};
    }
    if (first >= before_last_) return {at(last_, first - before_last_), ld()};
    auto* joined = static_cast<char*>(memory->AtLeast(row_bytes * static_cast<size_t>(count)));
    for (int64_t r = 0; r < count; ++r) {
      const int64_t row = first + r;
      std::memcpy(joined + row_bytes * static_cast<size_t>(r),
                  row < before_last_ ? at(whole_, row) : at(last_, row - before_last_),
                  element * static_cast<size_t>(width_));
    }
    return {joined, ld()};
  }

 private:
  const int64_t width_, before_last_;
  const Factor whole_, last_;
};

}  // namespace

Linear::Linear(View input, View output, Weight weight, Bias bias, Activation activation,
               RowMasks masks)
    : weight_(weight), bias_(bias), activation_(activation), masks_(masks) {
  inputs_ = {{input, false}};
  outputs_ = {output};
  if (activation == Activation::kGelu) {
    throw std::invalid_argument("a linear layer has no gelu: a layer of its own follows it");
  }
  if (masks.any()) {
    RequireDropsInPlace(activation);
    extras_ = masks.Extras(output.width);
  }
}

void Linear::Attach(DenseProgram* program) {
  parameters_ = {{weight_.parameter, weight_.offset, input().width * output().width}};
  if (bias_.parameter >= 0) {
    parameters_.push_back({bias_.parameter, bias_.offset, output().width});
  }
  precision_ = program->precision();
  type_ = program->factor_type();
  program->UseAsFactor(input().value);
  program->UseGradientAsFactor(output().value);
  if (program->device() == nullptr) {
    const size_t bytes = PackedBound(input().width, output().width);
    forward_pack_ = program->AddPacked(bytes);
    backward_pack_ = program->AddPacked(bytes);
  } else if (precision_ != Precision::kFloat32) {
    rounded_ = program->AddRounded(RoundedSize(precision_) *
                                   static_cast<size_t>(weight_rows() * rounded_ld()));
  }
  if (bias_.parameter >= 0) bias_sums_ = program->AddPartialSums(output().width);
}

ProductShape Linear::Shape(Pass pass, int64_t rows, int64_t lda, int64_t ldc) const {
  const bool forward = pass == Pass::kForward;
  ProductShape shape;
  shape.m = rows;
  shape.n = forward ? output().width : input().width;
  shape.k = forward ? input().width : output().width;
  shape.lda = lda;
  shape.ldb = weight_ld();
  shape.ldc = ldc;
  shape.transposed_b = forward != weight_.input_major;
  shape.accumulates = !forward && inputs_[0].adds;
  shape.packed_b = true;
  shape.type = type_;
  return shape;
}

bool Linear::Packs(const BatchRun& run) const {
  return run.training || run.slices > 1 || precision_ != Precision::kFloat32;
}

Factor Linear::DeviceWeight(const BatchRun& run) const {
  if (precision_ != Precision::kFloat32) return {run.rounded + rounded_, rounded_ld()};
  return {run.parameters[weight_.parameter] + weight_.offset, weight_ld()};
}

void Linear::Prepare(const BatchRun& run) const {
  if (precision_ == Precision::kFloat32) return;
  const Block weight{const_cast<float*>(run.parameters[weight_.parameter]) + weight_.offset,
                     weight_ld()};
  void* rounded = run.rounded + rounded_;
  if (precision_ == Precision::kBFloat16) {
    run.loops->round_bfloat16(weight_rows(), weight_columns(), weight,
                              static_cast<uint16_t*>(rounded), rounded_ld());
  } else {
    run.loops->round_to_float(weight_rows(), weight_columns(), weight,
                              {static_cast<float*>(rounded), rounded_ld()});
  }
}

int64_t Linear::PackTasks(const BatchRun& run) const {
  if (run.device != nullptr) return 0;
  if (run.training) return 2;
  return Packs(run) ? 1 : 0;
}

void Linear::Pack(const BatchRun& run, int64_t task) const {
  const bool forward = task == 0;
  const SliceRun any(run, 0, nullptr);
  // The layout of a packed weight depends on the whole shape, including the leading dimensions.
  const ProductShape shape =
      forward
          ? Shape(Pass::kForward, run.slice_rows, any.factor_ld(input()), any.value_ld(output()))
          : Shape(Pass::kBackward, run.slice_rows, any.gradient_factor_ld(output()),
                  any.gradient_ld(input()));
  const auto product = FindPacked(shape, PackedBound(input().width, output().width));
  const float* weight = run.parameters[weight_.parameter] + weight_.offset;
  char* packed = run.packed + (forward ? forward_pack_ : backward_pack_);
  if (precision_ != Precision::kRoundedFloat32) {
    product->Pack(weight, packed);
    return;
  }
  thread_local AlignedMemory memory;
  const int64_t rows = weight_rows();
  const int64_t ld = weight_ld();
  auto* rounded =
      static_cast<float*>(memory.AtLeast(sizeof(float) * static_cast<size_t>(rows * ld)));
  ActiveElementwise().round_to_float(rows, ld, {const_cast<float*>(weight), ld}, {rounded, ld});
  product->Pack(rounded, packed);
}

void Linear::Forward(const SliceRun& slice) const {
  if (!slice.only_rounded(input())) slice.RoundValue(input());
  const Factor x = slice.factor(input());
  Multiply(slice, Pass::kForward, x, slice.value(output()));
  Activate(slice);
  if (slice.only_rounded(output())) slice.RoundValue(output());
}

void Linear::Multiply(const SliceRun& slice, Pass pass, const Factor& from, const Block& to) const {
  const BatchRun& run = slice.run();
  ProductShape shape = Shape(pass, slice.rows(), from.ld, to.ld);
  if (run.device != nullptr) {
    const Factor weight = DeviceWeight(run);
    shape.packed_b = false;
    shape.ldb = weight.ld;
    run.device->Multiply(shape, from.data, weight.data, to.data);
    return;
  }
  shape.packed_b = Packs(run);
  const int64_t pack = pass == Pass::kForward ? forward_pack_ : backward_pack_;
  const void* weight = shape.packed_b ? static_cast<const void*>(run.packed + pack)
                                      : run.parameters[weight_.parameter] + weight_.offset;
  OneDnn::Find(shape)->Run(from.data, weight, to.data);
}

void Linear::Activate(const SliceRun& slice) const {
  const int64_t width = output().width;
  const Block y = slice.value(output());
  const float* bias =
      bias_.parameter < 0 ? nullptr : slice.run().parameters[bias_.parameter] + bias_.offset;
  slice.loops().activate(activation_, bias, slice.rows(), width, y);
  if (masks_.any()) slice.loops().multiply_masks(slice.rows(), width, masks_.Rows(slice), y);
}

bool Linear::can_round_output() const {
  // If DropsInPlace is false, the backward pass needs the unrounded output to compute the slope.
  return DropsInPlace(activation_);
}

bool Linear::passes_output() const {
  return activation_ == Activation::kNone && !masks_.any() && precision_ == Precision::kFloat32;
}

void Linear::ActivationGradient(const SliceRun& slice) const {
  const Elementwise& loops = slice.loops();
  const int64_t width = output().width;
  const Block gradient = slice.gradient(output());
  float* sums = bias_.parameter < 0 ? nullptr : slice.partial_sums(bias_sums_);
  if (passes_output() && slice.run().device == nullptr) {
    if (sums != nullptr) loops.column_sums(slice.rows(), width, gradient, sums);
    return;
  }
  if (!slice.only_rounded(output())) {
    loops.activation_gradient(activation_, slice.rows(), width, slice.value(output()), gradient,
                              sums);
    slice.RoundGradient(output());
    return;
  }
  const Factor y = slice.factor(output());
  if (precision_ == Precision::kRoundedFloat32) {
    auto* data = static_cast<float*>(const_cast<void*>(y.data));
    loops.activation_gradient(activation_, slice.rows(), width, {data, y.ld}, gradient, sums);
    slice.RoundGradient(output());
    return;
  }
  const Factor rounded = slice.gradient_factor(output());
  loops.activation_gradient_bfloat16(
      activation_, slice.rows(), width, static_cast<const uint16_t*>(y.data), y.ld, gradient,
      static_cast<uint16_t*>(const_cast<void*>(rounded.data)), rounded.ld, sums);
}

void Linear::MaskGradient(const SliceRun& slice) const {
  if (!masks_.any()) return;
  slice.loops().multiply_masks(slice.rows(), output().width, masks_.Rows(slice),
                               slice.gradient(output()));
}

void Linear::Backward(const SliceRun& slice) const {
  MaskGradient(slice);
  ActivationGradient(slice);
  Multiply(slice, Pass::kBackward, slice.gradient_factor(output()), slice.gradient(input()));
}

int64_t Linear::WeightTiles(const BatchRun& run) const {
  if (run.device != nullptr) return 0;
  const TileShape shape = TileFor(type_, run.batch);
  return Tiles(weight_rows(), shape.rows) * Tiles(weight_columns(), shape.columns);
}

int64_t Linear::GradientTasks(const BatchRun& run) const {
  return WeightTiles(run) + (bias_.parameter >= 0 ? 1 : 0);
}

Linear::Tile Linear::TileOf(const BatchRun& run, int64_t task) const {
  const TileShape shape = TileFor(type_, run.batch);
  const int64_t across = Tiles(weight_columns(), shape.columns);
  const int64_t row = task / across * shape.rows;
  const int64_t column = task % across * shape.columns;
  return {row, std::min(shape.rows, weight_rows() - row), column,
          std::min(shape.columns, weight_columns() - column)};
}

void Linear::Gradient(const BatchRun& run, int64_t task, bool adds) const {
  if (task < WeightTiles(run)) {
    WeightGradient(run, TileOf(run, task), adds);
    return;
  }
  SumPartials(run, bias_sums_, output().width, adds,
              run.parameter_gradients[bias_.parameter] + bias_.offset);
}

// gradient of W [out, in] = gradient of the output^T [out, B] input [B, in], or its transpose
void Linear::WeightGradient(const BatchRun& run, const Tile& tile, bool adds) const {
  const int64_t ld = weight_ld();
  const Block target{
      run.parameter_gradients[weight_.parameter] + weight_.offset + tile.row * ld + tile.column,
      ld};
  if (run.batch == 0) {
    if (!adds) ZeroRows(target, 0, tile.rows, tile.columns);
    return;
  }
  const BatchFactor x(run, input().width,
                      [&](const SliceRun& slice) { return slice.factor(input()); });
  const BatchFactor dy(run, output().width,
                       [&](const SliceRun& slice) { return slice.gradient_factor(output()); });
  const BatchFactor& rows = weight_.input_major ? x : dy;
  const BatchFactor& columns = weight_.input_major ? dy : x;
  const auto at = [&](const Factor& factor, int64_t column) {
    return static_cast<const char*>(factor.data) + SizeOf(type_) * static_cast<size_t>(column);
  };
  ProductShape shape;
  shape.m = tile.rows;
  shape.n = tile.columns;
  shape.lda = rows.ld();
  shape.ldb = columns.ld();
  shape.ldc = LeadingDimension(tile.columns);
  shape.transposed_a = true;
  shape.type = type_;
  thread_local AlignedMemory memory, joined_rows, joined_columns;
  auto* sum = static_cast<float*>(
      memory.AtLeast(sizeof(float) * static_cast<size_t>(tile.rows * shape.ldc)));
  const int64_t depth = TileFor(type_, run.batch).depth;
  for (int64_t first = 0; first < run.padded(); first += depth) {
    shape.k = std::min(depth, run.padded() - first);
    shape.accumulates = first > 0;
    const Factor left = rows.Rows(first, shape.k, SizeOf(type_), &joined_rows);
    const Factor right = columns.Rows(first, shape.k, SizeOf(type_), &joined_columns);
    OneDnn::Find(shape)->Run(at(left, tile.row), at(right, tile.column), sum);
  }
  const Block from{sum, shape.ldc};
  if (adds) {
    ActiveElementwise().add(tile.rows, tile.columns, from, target);
    return;
  }
  CopyRows(from, tile.rows, tile.columns, target);
}

void Linear::DeviceGradient(const BatchRun& run, bool adds) const {
  const SliceRun whole(run, 0, nullptr);
  const Factor x = whole.factor(input());
  const Factor dy = whole.gradient_factor(output());
  const Factor& rows = weight_.input_major ? x : dy;
  const Factor& columns = weight_.input_major ? dy : x;
  ProductShape shape;
  shape.m = weight_rows();
  shape.n = weight_columns();
  shape.k = run.slice_rows;
  shape.lda = rows.ld;
  shape.ldb = columns.ld;
  shape.ldc = weight_ld();
  shape.transposed_a = true;
  shape.accumulates = adds;
  shape.type = type_;
  run.device->Multiply(shape, rows.data, columns.data,
                       run.parameter_gradients[weight_.parameter] + weight_.offset);
}

}  // namespace msrec
