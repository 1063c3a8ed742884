// SPDX-License-Identifier: Apache-2.0
//
// Element-wise loops of dense layers over blocks of rows, compiled once per instruction set and
// chosen when first used. All sets give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace msrec {

enum class Activation : int32_t { kNone = 0, kRelu, kLeakyRelu, kGelu, kTanh, kSigmoid };

// A block of rows of float32: `width` columns, rows `ld` floats apart.
struct Block {
  float* data = nullptr;
  int64_t ld = 0;

  float* row(int64_t r) const { return data + r * ld; }
  Block columns(int64_t from) const { return {data + from, ld}; }
};

// Masks [count, width] of a dropout: row r of a block takes mask (first + r) mod count; none where
// `data` is null.
struct MaskRows {
  const float* data = nullptr;
  int64_t first = 0;
  int64_t count = 1;
};

// Vectors [width] by which a batch is normalized.
struct Normalizer {
  const float* mean = nullptr;
  const float* scale = nullptr;
  const float* beta = nullptr;
};

// Floats that the loops over pairs of a row's vectors need beside the row.
struct PairScratch {
  static constexpr int64_t Ld(int64_t vectors) { return (vectors + 15) / 16 * 16; }
  static constexpr int64_t Forward(int64_t vectors, int64_t dim) {
    return dim * Ld(vectors) + vectors * (vectors + 1) / 2 + 16;
  }
  static constexpr int64_t Backward(int64_t vectors) { return vectors * vectors; }
};

// Experts of `width` units each, mixed for so many tasks.
struct MixtureShape {
  int64_t tasks = 0;
  int64_t experts = 0;
  int64_t width = 0;
};

// Memory of a gradient, which is written, or added to what is there.
struct Target {
  Block block;
  bool adds = false;
};

constexpr int kMostCrossLayers = 64;

// A cross network whose layers have a vector each: output = alpha_L x + bias, with a number a row:
// alpha_0 = 1, alpha_k+1 = alpha_k (1 + x weight_k) + constants_k.
struct CrossRows {
  int64_t width = 0;
  int64_t layers = 0;                // at most kMostCrossLayers
  const float* weight = nullptr;     // [layers, width]
  const float* constants = nullptr;  // [layers]
  const float* bias = nullptr;       // [width]
  bool rounds = false;               // whether factors of products are rounded to bfloat16
};

struct Elementwise {
  const char* name;  // "avx512", "avx2", "base"; "cuda"

  // Copies rows, clears rows, widens rows of bfloat16, and writes a row's one number to `width`
  // columns.
  void (*copy)(int64_t rows, int64_t width, Block from, Block to);
  void (*clear)(int64_t rows, int64_t width, Block x);
  void (*widen_bfloat16)(int64_t rows, int64_t width, const uint16_t* from, int64_t from_ld,
                         Block to);
  void (*spread)(int64_t rows, int64_t width, Block column, Block to);

  // x = a(x + bias) in place; a null bias is 0.
  void (*activate)(Activation a, const float* bias, int64_t rows, int64_t width, Block x);

  // gradient = gradient a'(.) in place, of what `activate` returned as `output`; adds the columns'
  // sums of the result to `bias_sums` where that is not null. Not for gelu.
  void (*activation_gradient)(Activation a, int64_t rows, int64_t width, Block output,
                              Block gradient, float* bias_sums);

  // The same of relu, leakyrelu or none, of an output that is kept in bfloat16; the result is
  // rounded to bfloat16, and added up before it is rounded.
  void (*activation_gradient_bfloat16)(Activation a, int64_t rows, int64_t width,
                                       const uint16_t* output, int64_t output_ld, Block gradient,
                                       uint16_t* result, int64_t result_ld, float* bias_sums);

  // gelu of the inputs `x`, and its gradient: gradient = gradient gelu'(x).
  void (*gelu)(int64_t rows, int64_t width, Block x, Block output);
  void (*gelu_gradient)(int64_t rows, int64_t width, Block x, Block gradient);

  // sums[j] += sum over rows of x[r][j], row by row.
  void (*column_sums)(int64_t rows, int64_t width, Block x, float* sums);

  // output = x rounded to bfloat16, to the nearest, ties to even; NaN stays NaN.
  void (*round_bfloat16)(int64_t rows, int64_t width, Block x, uint16_t* output, int64_t ld);
  // The same, but kept as float32.
  void (*round_to_float)(int64_t rows, int64_t width, Block x, Block output);

  // output = a b + c, or output += a b + c.
  void (*multiply_add)(int64_t rows, int64_t width, Block a, Block b, Block c, Block output);
  // output += a b.
  void (*add_product)(int64_t rows, int64_t width, Block a, Block b, Block output);
  // Multiplies each row by its mask.
  void (*multiply_masks)(int64_t rows, int64_t width, const MaskRows& masks, Block x);
  // output += a.
  void (*add)(int64_t rows, int64_t width, Block a, Block output);

  // Softmax of each group of `group` columns, in place; and gradient of its input, of the output.
  void (*softmax)(int64_t rows, int64_t groups, int64_t group, Block x);
  void (*softmax_gradient)(int64_t rows, int64_t groups, int64_t group, Block output,
                           Block gradient);

  // Returns the sum of the logistic losses of n logits, and writes the gradient of the logits times
  // `scale`. Null on a device: the loss is no layer, and computed on the host.
  double (*logistic_loss)(int64_t n, const float* logits, const float* labels, float scale,
                          float* gradient);

  // Dot products of all pairs (i, j) of the vectors [vectors, dim] of a row, j < i, or j <= i with
  // the diagonal, in the order (1, 0), (2, 0), (2, 1), ...; and gradient = or += that of x.
  // `scratch` has `PairScratch` floats.
  void (*pair_dots)(int64_t rows, int64_t vectors, int64_t dim, bool diagonal, Block x,
                    float* scratch, Block output);
  void (*pair_dots_gradient)(int64_t rows, int64_t vectors, int64_t dim, bool diagonal, Block x,
                             Block output_gradient, float* scratch, bool adds, Block gradient);
  // Sum over pairs of the fields [fields, dim] of a row of their products, unit by unit.
  void (*pair_sums)(int64_t rows, int64_t fields, int64_t dim, Block x, Block output);
  void (*pair_sums_gradient)(int64_t rows, int64_t fields, int64_t dim, Block x,
                             Block output_gradient, bool adds, Block gradient);
  // Sum of a row's columns, in one.
  void (*row_sums)(int64_t rows, int64_t width, Block x, Block output);

  // output [tasks, width] = gates [tasks, experts] units [experts, width] of each row; gradient =
  // or += that of the units, and of the gates.
  void (*mix)(int64_t rows, const MixtureShape& shape, Block units, Block gates, Block output);
  void (*mix_units_gradient)(int64_t rows, const MixtureShape& shape, Block gates,
                             Block output_gradient, bool adds, Block gradient);
  void (*mix_gates_gradient)(int64_t rows, const MixtureShape& shape, Block units,
                             Block output_gradient, bool adds, Block gradient);

  // output = x, each group of `group` columns times its column of `scales`; and the gradients.
  void (*scale_groups)(int64_t rows, int64_t groups, int64_t group, Block scales, Block x,
                       Block output);
  void (*scale_groups_gradient)(int64_t rows, int64_t groups, int64_t group, Block scales, Block x,
                                Block gradient, Target of_scales, Target of_x);

  // Gradients of x0, t and x, of that of x0 t + x. x may be x0: both have one gradient then.
  void (*cross_combine_gradient)(int64_t rows, int64_t width, Block x0, Block t, Block gradient,
                                 Target of_x0, Target of_t, Target of_x);

  // A CrossRows. `factor` is x as products read it; products [rows, layers] = factor weight^T.
  void (*cross_rows)(int64_t rows, const CrossRows& cross, Block x, Block factor, Block products,
                     Block output);
  // Adds up, over the rows, the gradients of weight, bias and constants, one behind the other in
  // `sums`.
  void (*cross_rows_gradient)(int64_t rows, const CrossRows& cross, Block x, Block factor,
                              Block products, Block gradient, Target of_x, float* sums);

  // x = x / divisor, of `width` numbers.
  void (*divide)(int64_t width, float divisor, float* x);
  // Batch normalization. sums[j] += (x - mean)^2 over rows.
  void (*squared_deviations)(int64_t rows, int64_t width, Block x, const float* mean, float* sums);
  // output = a((x - mean) scale + beta), times the row's mask where there are any. Not for gelu.
  void (*normalize)(Activation a, int64_t rows, int64_t width, Block x, const Normalizer& norm,
                    const MaskRows& masks, Block output);
  // result = a'(output) gradient, times the row's mask where there are any: the gradient of what
  // the activation read; adds the columns' sums of the result, and of result (x - mean), to `sums`
  // and `products`. The result may be the gradient.
  void (*normalized_gradient)(Activation a, int64_t rows, int64_t width, Block x, const float* mean,
                              const MaskRows& masks, Block output, Block gradient, float* sums,
                              float* products, Block result);
  // gradient = scale (gradient - shift - (x - mean) slope).
  void (*normalize_gradient)(int64_t rows, int64_t width, Block x, const float* mean,
                             const float* scale, const float* shift, const float* slope,
                             Block gradient);
};

// Returns the best set this CPU runs, or the one named by MINDSPORE_REC_SIMD (avx512, avx2, base).
const Elementwise& ActiveElementwise();

// Returns the set of that name, or null if this CPU or build lacks it. For tests.
const Elementwise* FindElementwise(const char* name);

}  // namespace msrec
