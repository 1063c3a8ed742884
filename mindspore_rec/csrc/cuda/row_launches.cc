// SPDX-License-Identifier: Apache-2.0
//
// Launches the device kernels that treat each element separately.
#include "cuda/launches.h"

namespace msrec {
namespace kernel_loops {
namespace {

// The kernels identify an activation by its number in the enum Activation.
static_assert(static_cast<int>(Activation::kRelu) == 1, "ActivationOf");
static_assert(static_cast<int>(Activation::kLeakyRelu) == 2, "ActivationOf");
static_assert(static_cast<int>(Activation::kTanh) == 4, "ActivationOf");
static_assert(static_cast<int>(Activation::kSigmoid) == 5, "ActivationOf");

void LaunchMap(const char* kernel, int64_t rows, int64_t width, const Block& from,
               const Block& to) {
  Launch(kernel, rows * width, kernels::MapArguments{width, RowsOf(from), RowsOf(to)});
}

void CopyRows(int64_t rows, int64_t width, Block from, Block to) {
  LaunchMap("Copy", rows, width, from, to);
}

void DivideNumbers(int64_t width, float divisor, float* x) {
  Launch("Divide", width, kernels::DivideArguments{divisor, x});
}

void ClearRows(int64_t rows, int64_t width, Block x) {
  Launch("Clear", rows * width, kernels::ClearArguments{width, RowsOf(x)});
}

void WidenRows(int64_t rows, int64_t width, const uint16_t* from, int64_t from_ld, Block to) {
  Launch("WidenBfloat16", rows * width,
         kernels::HalfArguments{width, RowsOf(to), RowsOf(from, from_ld)});
}

void SpreadColumn(int64_t rows, int64_t width, Block column, Block to) {
  LaunchMap("Spread", rows, width, column, to);
}

void ActivateRows(Activation a, const float* bias, int64_t rows, int64_t width, Block x) {
  if (a == Activation::kNone && bias == nullptr) return;
  Launch("Activate", rows * width,
         kernels::ActivateArguments{static_cast<int32_t>(a), bias, width, RowsOf(x)});
}

void GeluRows(int64_t rows, int64_t width, Block x, Block output) {
  LaunchMap("GeluOf", rows, width, x, output);
}

void GeluGradientRows(int64_t rows, int64_t width, Block x, Block gradient) {
  LaunchMap("GeluGradient", rows, width, x, gradient);
}

void RoundRows(int64_t rows, int64_t width, Block x, uint16_t* output, int64_t ld) {
  Launch("RoundBfloat16", rows * width,
         kernels::HalfArguments{width, RowsOf(x), RowsOf(output, ld)});
}

void RoundRowsToFloat(int64_t rows, int64_t width, Block x, Block output) {
  LaunchMap("RoundToFloat", rows, width, x, output);
}

void MultiplyAddRows(int64_t rows, int64_t width, Block a, Block b, Block c, Block output) {
  Launch("MultiplyAdd", rows * width,
         kernels::MultiplyAddArguments{width, RowsOf(a), RowsOf(b), RowsOf(c), RowsOf(output)});
}

void AddProductRows(int64_t rows, int64_t width, Block a, Block b, Block output) {
  Launch("AddProduct", rows * width,
         kernels::AddProductArguments{width, RowsOf(a), RowsOf(b), RowsOf(output)});
}

void MultiplyMaskRows(int64_t rows, int64_t width, const MaskRows& masks, Block x) {
  Launch("MultiplyMasks", rows * width,
         kernels::MultiplyMasksArguments{width, MasksOf(masks), RowsOf(x)});
}

void AddRows(int64_t rows, int64_t width, Block a, Block output) {
  LaunchMap("Add", rows, width, a, output);
}

void NormalizeRows(Activation a, int64_t rows, int64_t width, Block x, const Normalizer& norm,
                   const MaskRows& masks, Block output) {
  Launch("Normalize", rows * width,
         kernels::NormalizeArguments{static_cast<int32_t>(a), width, RowsOf(x), norm.mean,
                                     norm.scale, norm.beta, MasksOf(masks), RowsOf(output)});
}

void NormalizeGradientRows(int64_t rows, int64_t width, Block x, const float* mean,
                           const float* scale, const float* shift, const float* slope,
                           Block gradient) {
  Launch("NormalizeGradient", rows * width,
         kernels::NormalizeGradientArguments{width, RowsOf(x), mean, scale, shift, slope,
                                             RowsOf(gradient)});
}

}  // namespace

void SetRowLoops(Elementwise* loops) {
  loops->copy = CopyRows;
  loops->clear = ClearRows;
  loops->divide = DivideNumbers;
  loops->widen_bfloat16 = WidenRows;
  loops->spread = SpreadColumn;
  loops->activate = ActivateRows;
  loops->gelu = GeluRows;
  loops->gelu_gradient = GeluGradientRows;
  loops->round_bfloat16 = RoundRows;
  loops->round_to_float = RoundRowsToFloat;
  loops->multiply_add = MultiplyAddRows;
  loops->add_product = AddProductRows;
  loops->multiply_masks = MultiplyMaskRows;
  loops->add = AddRows;
  loops->normalize = NormalizeRows;
  loops->normalize_gradient = NormalizeGradientRows;
}

}  // namespace kernel_loops
}  // namespace msrec
