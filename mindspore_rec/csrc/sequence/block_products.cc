// SPDX-License-Identifier: Apache-2.0
#include "sequence/block_products.h"

#include <algorithm>

#include "dense/elementwise.h"
#include "sequence/sequence_kernels.h"

namespace msrec {
namespace {

FactorType TypeOf(Precision precision) {
  return precision == Precision::kBFloat16 ? FactorType::kBFloat16 : FactorType::kFloat32;
}

void RoundToFloat(int64_t rows, int64_t width, const float* from, float* to) {
  ActiveElementwise().round_to_float(rows, width, {const_cast<float*>(from), width}, {to, width});
}

void MultiplySmall(const SmallShape& shape, const void* a, const void* b, float* c) {
  ActiveSequenceKernels().multiply(shape, static_cast<const float*>(a),
                                   static_cast<const float*>(b), c);
}

size_t FloatBytes(int64_t floats) { return sizeof(float) * static_cast<size_t>(floats); }

}  // namespace

BlockProducts::BlockProducts(Pass pass, Precision precision, int64_t rows,
                             const LinearWeight& weight)
    : pass_(pass), precision_(precision), type_(TypeOf(precision)), rows_(rows), weight_(weight) {
  if (!OneDnn::loaded()) {
    CopyWeight();
    return;
  }
  const bool forward = pass == Pass::kForward;
  ProductShape shape;
  shape.m = rows;
  shape.n = shape.ldc = forward ? weight.out : weight.in;
  shape.k = shape.lda = forward ? weight.in : weight.out;
  shape.ldb = weight.in;
  shape.transposed_b = forward;
  shape.packed_b = true;
  shape.type = type_;
  Pack(shape);
  if (forward) return;
  first_ = OneDnn::Find(GradientShape(false));
  adding_ = OneDnn::Find(GradientShape(true));
}

ProductShape BlockProducts::GradientShape(bool adds) const {
  ProductShape shape;
  shape.m = shape.lda = weight_.out;
  shape.n = shape.ldb = shape.ldc = weight_.in;
  shape.k = rows_;
  shape.transposed_a = true;
  shape.accumulates = adds;
  shape.type = type_;
  return shape;
}

void BlockProducts::Pack(const ProductShape& shape) {
  product_ = OneDnn::Find(shape);
  packed_ = memory_.AtLeast(product_->packed_bytes());
  if (precision_ != Precision::kRoundedFloat32) {
    product_->Pack(weight_.data, packed_);
    return;
  }
  AlignedMemory memory;
  auto* rounded = static_cast<float*>(memory.AtLeast(FloatBytes(weight_.out * weight_.in)));
  RoundToFloat(weight_.out, weight_.in, weight_.data, rounded);
  product_->Pack(rounded, packed_);
}

void BlockProducts::CopyWeight() {
  packed_ = memory_.AtLeast(FloatBytes(weight_.out * weight_.in));
  auto* copy = static_cast<float*>(packed_);
  if (pass_ == Pass::kGradient) {
    std::copy_n(weight_.data, weight_.out * weight_.in, copy);
  } else {
    for (int64_t i = 0; i < weight_.out; ++i) {
      for (int64_t j = 0; j < weight_.in; ++j) {
        copy[j * weight_.out + i] = weight_.data[i * weight_.in + j];
      }
    }
  }
  if (precision_ != Precision::kFloat32) RoundToFloat(weight_.out, weight_.in, copy, copy);
}

const void* BlockProducts::Factor(int place, int64_t width, const float* x) const {
  if (precision_ == Precision::kFloat32) return x;
  thread_local AlignedMemory memory[2];
  void* rounded = memory[place].AtLeast(FloatBytes(rows_ * width));
  if (precision_ == Precision::kBFloat16) {
    ActiveElementwise().round_bfloat16(rows_, width, {const_cast<float*>(x), width},
                                       static_cast<uint16_t*>(rounded), width);
  } else {
    RoundToFloat(rows_, width, x, static_cast<float*>(rounded));
  }
  return rounded;
}

void BlockProducts::Multiply(const void* rows, int64_t columns, int64_t depth,
                             float* product) const {
  if (product_ != nullptr) {
    product_->Run(rows, packed_, product);
    return;
  }
  SmallShape shape = {};
  shape.m = rows_;
  shape.n = shape.ldb = shape.ldc = columns;
  shape.k = shape.row_step = depth;
  shape.step = 1;
  MultiplySmall(shape, rows, packed_, product);
}

void BlockProducts::Forward(const void* x, float* y) const {
  Multiply(x, weight_.out, weight_.in, y);
}

void BlockProducts::Backward(const void* of_y, float* of_x) const {
  Multiply(of_y, weight_.in, weight_.out, of_x);
}

void BlockProducts::Gradient(const void* of_y, const void* x, bool adds, float* of_weight) const {
  if (product_ != nullptr) {
    (adds ? adding_ : first_)->Run(of_y, x, of_weight);
    return;
  }
  SmallShape shape = {};
  shape.m = shape.step = weight_.out;
  shape.n = shape.ldb = shape.ldc = weight_.in;
  shape.k = rows_;
  shape.row_step = 1;
  shape.adds = adds;
  MultiplySmall(shape, of_y, x, of_weight);
}

}  // namespace msrec
