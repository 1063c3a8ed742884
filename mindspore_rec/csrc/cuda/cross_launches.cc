// SPDX-License-Identifier: Apache-2.0
//
// Launches the device kernels of cross networks.
#include "cuda/launches.h"

namespace msrec {
namespace kernel_loops {
namespace {

void CrossCombineGradientRows(int64_t rows, int64_t width, Block x0, Block t, Block gradient,
                              Target of_x0, Target of_t, Target of_x) {
  const bool is_same = of_x0.block.data == of_x.block.data;
  Launch("CrossCombineGradient", rows * width,
         kernels::CrossCombineArguments{width, RowsOf(x0), RowsOf(t), RowsOf(gradient),
                                        RowsOf(of_x0.block), RowsOf(of_t.block),
                                        is_same ? kernels::Rows{} : RowsOf(of_x.block), of_x0.adds,
                                        of_t.adds, of_x.adds});
}

void CrossRowsOutput(int64_t rows, const CrossRows& cross, Block x, Block factor, Block products,
                     Block output) {
  if (rows == 0) return;
  ProductShape shape;
  shape.m = rows;
  shape.n = cross.layers;
  shape.k = cross.width;
  shape.lda = factor.ld;
  shape.ldb = cross.width;
  shape.ldc = products.ld;
  shape.transposed_b = true;
  CurrentKernelDevice().Multiply(shape, factor.data, cross.weight, products.data);
  float* alphas = ScratchFloats(rows);
  Launch("CrossAlphas", rows,
         kernels::CrossAlphasArguments{cross.layers, RowsOf(products), cross.constants, alphas});
  Launch("CrossOutput", rows * cross.width,
         kernels::CrossOutputArguments{cross.width, RowsOf(x), alphas, cross.bias, RowsOf(output)});
}

// Scratch memory for the gradient kernels: numbers for each row, and partial sums.
struct CrossScratch {
  CrossScratch(int64_t rows, const CrossRows& cross) {
    const int64_t products = rows * cross.layers;
    const int64_t most = std::max(cross.width, cross.layers);
    const int64_t dot_parts = rows * kernels::kDotParts;
    alphas = ScratchFloats(rows + 2 * products + dot_parts + ThreadsOf(ChunksOf(rows, most)));
    of_products = alphas + rows;
    of_constants = of_products + products;
    dots = of_constants + products;
    partial = dots + dot_parts;
  }

  float *alphas, *of_products, *of_constants, *dots, *partial;
};

void AddWeightGradient(int64_t rows, const CrossRows& cross, const Block& factor,
                       const float* of_products, float* sums) {
  ProductShape shape;
  shape.m = cross.layers;
  shape.n = cross.width;
  shape.k = rows;
  shape.lda = cross.layers;
  shape.ldb = factor.ld;
  shape.ldc = cross.width;
  shape.transposed_a = true;
  shape.accumulates = true;
  CurrentKernelDevice().Multiply(shape, of_products, factor.data, sums);
}

void CrossRowsGradientRows(int64_t rows, const CrossRows& cross, Block x, Block factor,
                           Block products, Block gradient, Target of_x, float* sums) {
  if (rows == 0) return;
  const int64_t width = cross.width;
  const int64_t layers = cross.layers;
  const CrossScratch at(rows, cross);
  Launch("RowDots", rows * kernels::kDotParts,
         kernels::RowDotsArguments{width, RowsOf(gradient), RowsOf(x), at.dots});
  Launch(
      "CrossAlphasGradient", rows,
      kernels::CrossAlphasGradientArguments{layers, cross.rounds, RowsOf(products), cross.constants,
                                            at.dots, at.alphas, at.of_products, at.of_constants});
  Launch(
      "CrossInputGradient", rows * width,
      kernels::CrossInputGradientArguments{width, layers, cross.weight, at.alphas, at.of_products,
                                           RowsOf(gradient), RowsOf(of_x.block), of_x.adds});
  AddWeightGradient(rows, cross, factor, at.of_products, sums);
  float* of_bias = sums + layers * width;
  AddColumns(rows, width, gradient, at.partial, of_bias);
  AddColumns(rows, layers, {at.of_constants, layers}, at.partial, of_bias + width);
}

}  // namespace

void SetCrossLoops(Elementwise* loops) {
  loops->cross_combine_gradient = CrossCombineGradientRows;
  loops->cross_rows = CrossRowsOutput;
  loops->cross_rows_gradient = CrossRowsGradientRows;
}

}  // namespace kernel_loops
}  // namespace msrec
