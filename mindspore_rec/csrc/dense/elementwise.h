// SPDX-License-Identifier: Apache-2.0
//
// Element-wise loops of dense layers over blocks of rows. The loops are compiled once for each
// instruction set, and the set is chosen at the first use. All sets give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace msrec {

enum class Activation : int32_t { kNone = 0, kRelu, kLeakyRelu, kGelu, kTanh, kSigmoid };

// A block of float32 rows with `width` columns; rows begin `ld` floats apart.
struct Block {
  float* data = nullptr;
  int64_t ld = 0;

  float* row(int64_t r) const { return data + r * ld; }
  Block columns(int64_t from) const { return {data + from, ld}; }
};

// Masks [count, width] of a dropout: row r of a block uses mask (first + r) mod count. There are no
// masks if `data` is null.
struct MaskRows {
  const float* data = nullptr;
  int64_t first = 0;
  int64_t count = 1;
};

// Vectors [width] that normalize a batch.
struct Normalizer {
  const float* mean = nullptr;
  const float* scale = nullptr;
  const float* beta = nullptr;
};

// Number of scratch floats for the loops over pairs of a row's vectors.
struct PairScratch {
  static constexpr int64_t Ld(int64_t vectors) { return (vectors + 15) / 16 * 16; }
  static constexpr int64_t Forward(int64_t vectors, int64_t dim) {
    return dim * Ld(vectors) + vectors * (vectors + 1) / 2 + 16;
  }
  static constexpr int64_t Backward(int64_t vectors) { return vectors * vectors; }
};

// Experts of `width` units each, mixed for `tasks` tasks.
struct MixtureShape {
  int64_t tasks = 0;
  int64_t experts = 0;
  int64_t width = 0;
};

// Memory of a gradient. The loop overwrites the gradient or adds to it.
struct Target {
  Block block;
  bool adds = false;
};

constexpr int kMostCrossLayers = 64;

// A cross network whose layers have one weight vector each: output = alpha_L x + bias. Each row has
// a number alpha with alpha_0 = 1 and alpha_k+1 = alpha_k (1 + x weight_k) + constants_k.
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

  // Copies rows, clears rows, widens rows of bfloat16, or writes a row's one number to `width`
  // columns.
  void (*copy)(int64_t rows, int64_t width, Block from, Block to);
  void (*clear)(int64_t rows, int64_t width, Block x);
  void (*widen_bfloat16)(int64_t rows, int64_t width, const uint16_t* from, int64_t from_ld,
                         Block to);
  void (*spread)(int64_t rows, int64_t width, Block column, Block to);

  // x = a(x + bias) in place. A null bias counts as 0.
  void (*activate)(Activation a, const float* bias, int64_t rows, int64_t width, Block x);

  // gradient = gradient a'(.) in place, where `output` is the result of `activate`. Adds the column
  // sums of the result to `bias_sums` unless `bias_sums` is null. Not for gelu.
  void (*activation_gradient)(Activation a, int64_t rows, int64_t width, Block output,
                              Block gradient, float* bias_sums);

  // Like `activation_gradient` for relu, leakyrelu or none, with the output in bfloat16. The result
  // is added up and then rounded to bfloat16.
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
  // Like `round_bfloat16`, but the rounded numbers are stored as float32.
  void (*round_to_float)(int64_t rows, int64_t width, Block x, Block output);

  // output = a b + c, or output += a b + c.
  void (*multiply_add)(int64_t rows, int64_t width, Block a, Block b, Block c, Block output);
  // output += a b.
  void (*add_product)(int64_t rows, int64_t width, Block a, Block b, Block output);
  // Multiplies each row by its mask.
  void (*multiply_masks)(int64_t rows, int64_t width, const MaskRows& masks, Block x);
  // output += a.
  void (*add)(int64_t rows, int64_t width, Block a, Block output);

  // Softmax of each group of `group` columns, in place, and the gradient of the input from the
  // gradient of the output.
  void (*softmax)(int64_t rows, int64_t groups, int64_t group, Block x);
  void (*softmax_gradient)(int64_t rows, int64_t groups, int64_t group, Block output,
                           Block gradient);

  // Returns the sum of the logistic losses of n logits, and writes the gradient of the logits times
  // `scale`. Null on a device, because the loss is no layer and runs on the host.
  double (*logistic_loss)(int64_t n, const float* logits, const float* labels, float scale,
                          float* gradient);

  // Dot products of all pairs (i, j) of the vectors [vectors, dim] of a row. Pairs have j < i, or j
  // <= i with the diagonal, in the order (1, 0), (2, 0), (2, 1), ... The gradient loop computes
  // gradient = or += the gradient of x. `scratch` has `PairScratch` floats.
  void (*pair_dots)(int64_t rows, int64_t vectors, int64_t dim, bool diagonal, Block x,
                    float* scratch, Block output);
  void (*pair_dots_gradient)(int64_t rows, int64_t vectors, int64_t dim, bool diagonal, Block x,
                             Block output_gradient, float* scratch, bool adds, Block gradient);
  // Sum of the products of all pairs of the fields [fields, dim] of a row, element by element.
  void (*pair_sums)(int64_t rows, int64_t fields, int64_t dim, Block x, Block output);
  void (*pair_sums_gradient)(int64_t rows, int64_t fields, int64_t dim, Block x,
                             Block output_gradient, bool adds, Block gradient);
  // Sum of a row's columns, as one number.
  void (*row_sums)(int64_t rows, int64_t width, Block x, Block output);

  // output [tasks, width] = gates [tasks, experts] units [experts, width] for each row. The
  // gradient loops compute gradient = or += the gradient of the units, or of the gates.
  void (*mix)(int64_t rows, const MixtureShape& shape, Block units, Block gates, Block output);
  void (*mix_units_gradient)(int64_t rows, const MixtureShape& shape, Block gates,
                             Block output_gradient, bool adds, Block gradient);
  void (*mix_gates_gradient)(int64_t rows, const MixtureShape& shape, Block units,
                             Block output_gradient, bool adds, Block gradient);

  // output = x, with each group of `group` columns multiplied by its column of `scales`; and the
  // gradients.
  void (*scale_groups)(int64_t rows, int64_t groups, int64_t group, Block scales, Block x,
                       Block output);
  void (*scale_groups_gradient)(int64_t rows, int64_t groups, int64_t group, Block scales, Block x,
                                Block gradient, Target of_scales, Target of_x);

  // Computes the gradients of x0, t and x from the gradient of x0 t + x. If x is x0, there is one
  // gradient for x0 and x.
  void (*cross_combine_gradient)(int64_t rows, int64_t width, Block x0, Block t, Block gradient,
                                 Target of_x0, Target of_t, Target of_x);

  // Runs a CrossRows. `factor` is x as a factor of products; products [rows, layers] = factor
  // weight^T.
  void (*cross_rows)(int64_t rows, const CrossRows& cross, Block x, Block factor, Block products,
                     Block output);
  // Adds up the gradients of weight, bias and constants over the rows. The three gradients are
  // consecutive in `sums`.
  void (*cross_rows_gradient)(int64_t rows, const CrossRows& cross, Block x, Block factor,
                              Block products, Block gradient, Target of_x, float* sums);

  // x = x / divisor, for `width` numbers.
  void (*divide)(int64_t width, float divisor, float* x);
  // Batch normalization. sums[j] += (x - mean)^2 over rows.
  void (*squared_deviations)(int64_t rows, int64_t width, Block x, const float* mean, float* sums);
  // output = a((x - mean) scale + beta), multiplied by the row's mask if there are masks. Not for
  // gelu.
  void (*normalize)(Activation a, int64_t rows, int64_t width, Block x, const Normalizer& norm,
                    const MaskRows& masks, Block output);
  // result = a'(output) gradient, multiplied by the row's mask if there are masks: the gradient of
  // the activation's input. Adds the column sums of result to `sums`, and the column sums of result
  // (x - mean) to `products`. `result` may be the same memory as `gradient`.
  void (*normalized_gradient)(Activation a, int64_t rows, int64_t width, Block x, const float* mean,
                              const MaskRows& masks, Block output, Block gradient, float* sums,
                              float* products, Block result);
  // gradient = scale (gradient - shift - (x - mean) slope).
  void (*normalize_gradient)(int64_t rows, int64_t width, Block x, const float* mean,
                             const float* scale, const float* shift, const float* slope,
                             Block gradient);
};

// Returns the best set that this CPU runs, or the set named by MINDSPORE_REC_SIMD (avx512, avx2,
// base).
const Elementwise& ActiveElementwise();

// Returns the set of that name, or null if this CPU or build lacks it. For tests.
const Elementwise* FindElementwise(const char* name);

}  // namespace msrec
