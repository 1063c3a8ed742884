// SPDX-License-Identifier: Apache-2.0
//
// Element-wise loops of dense layers over blocks of rows. The loops are compiled once for each
// instruction set, and the instruction set is chosen at the first use. The results of all
// instruction sets are identical, bit for bit.
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

// Dropout masks [count, width]. Row r of a block uses mask (first + r) mod count. There are no
// masks if `data` is null.
struct MaskRows {
  const float* data = nullptr;
  int64_t first = 0;
  int64_t count = 1;
};

// The vectors [width] with which each row of a batch is normalized.
struct Normalizer {
  const float* mean = nullptr;
  const float* scale = nullptr;
  const float* beta = nullptr;
};

// Number of scratch floats that the loops over pairs of vectors need.
struct PairScratch {
  static constexpr int64_t Ld(int64_t vectors) { return (vectors + 15) / 16 * 16; }
  static constexpr int64_t Forward(int64_t vectors, int64_t dim) {
    return dim * Ld(vectors) + vectors * (vectors + 1) / 2 + 16;
  }
  static constexpr int64_t Backward(int64_t vectors) { return vectors * vectors; }
};

// Shape of a mixture of experts: each expert has `width` outputs, and each task has its own
// mixture.
struct MixtureShape {
  int64_t tasks = 0;
  int64_t experts = 0;
  int64_t width = 0;
};

// Memory of a gradient. A loop overwrites the gradient, or adds to the gradient if `adds` is true.
struct Target {
  Block block;
  bool adds = false;
};

constexpr int kMostCrossLayers = 64;

// A cross network whose layers each have one weight vector. For each row, output = alpha_L x + bias
// with alpha_0 = 1 and alpha_k+1 = alpha_k (1 + x weight_k) + constants_k.
struct CrossRows {
  int64_t width = 0;
  int64_t layers = 0;                // at most kMostCrossLayers
  const float* weight = nullptr;     // [layers, width]
  const float* constants = nullptr;  // [layers]
  const float* bias = nullptr;       // [width]
  bool rounds = false;               // true if factors of matrix products are rounded to bfloat16
};

// NumberCurves contains one curve for each number of a row. A curve consists of straight pieces
// between knots, which are vectors [dim].
struct NumberCurves {
  int64_t numbers = 0;
  int64_t dim = 0;
  int64_t bins = 0;              // number of pieces of a curve
  const float* knots = nullptr;  // [numbers, bins + 1, dim]
  int64_t knot_floats() const { return numbers * (bins + 1) * dim; }
};

// The waves of a number x are sin(2 pi f x) for each of the number's frequencies f, followed by
// cos(2 pi f x) for each f. The output is relu(weight * w + bias), where w is the vector of waves.
struct NumberWaves {
  int64_t numbers = 0;
  int64_t dim = 0;
  int64_t count = 0;                   // number of frequencies of a number
  const float* frequencies = nullptr;  // [numbers, count]
  const float* weight = nullptr;       // [dim, 2 count]
  const float* bias = nullptr;         // [dim]
  int64_t waves() const { return 2 * count; }
  // Number of scratch floats that the loops need.
  static constexpr int64_t Scratch(int64_t dim, int64_t count) {
    return (2 * count + 1) * ((dim + 7) / 8 * 8) + 4 * count;
  }
};

struct Elementwise {
  const char* name;  // "avx512", "avx2", "base"; "cuda"

  // `copy` copies rows, `clear` zeroes rows, `widen_bfloat16` converts rows to float32, and
  // `spread` writes the single number of a row to `width` columns.
  void (*copy)(int64_t rows, int64_t width, Block from, Block to);
  void (*clear)(int64_t rows, int64_t width, Block x);
  void (*widen_bfloat16)(int64_t rows, int64_t width, const uint16_t* from, int64_t from_ld,
                         Block to);
  void (*spread)(int64_t rows, int64_t width, Block column, Block to);

  // Sets x to a(x + bias), where `a` is the activation. If the bias is null, 0 is added.
  void (*activate)(Activation a, const float* bias, int64_t rows, int64_t width, Block x);

  // Multiplies `gradient` in place by the slope of the activation `a`. `output` is the result of
  // `activate`. Adds the column sums of the result to `bias_sums` unless `bias_sums` is null. The
  // activation must not be gelu.
  void (*activation_gradient)(Activation a, int64_t rows, int64_t width, Block output,
                              Block gradient, float* bias_sums);

  // Computes the same as `activation_gradient`, but for an output in bfloat16, and only for relu,
  // leakyrelu or none. The result is first added to `bias_sums` and then rounded to bfloat16.
  void (*activation_gradient_bfloat16)(Activation a, int64_t rows, int64_t width,
                                       const uint16_t* output, int64_t output_ld, Block gradient,
                                       uint16_t* result, int64_t result_ld, float* bias_sums);

  // `gelu` computes output = gelu(x). `gelu_gradient` computes gradient = gradient * gelu'(x).
  void (*gelu)(int64_t rows, int64_t width, Block x, Block output);
  void (*gelu_gradient)(int64_t rows, int64_t width, Block x, Block gradient);

  // Adds x[r][j] of all rows r to sums[j], row by row.
  void (*column_sums)(int64_t rows, int64_t width, Block x, float* sums);

  // Rounds x to bfloat16, to the nearest number, ties to even; NaN stays NaN.
  void (*round_bfloat16)(int64_t rows, int64_t width, Block x, uint16_t* output, int64_t ld);
  // Rounds as `round_bfloat16` does, but stores the rounded numbers as float32.
  void (*round_to_float)(int64_t rows, int64_t width, Block x, Block output);

  // output = a b + c.
  void (*multiply_add)(int64_t rows, int64_t width, Block a, Block b, Block c, Block output);
  // output += a b.
  void (*add_product)(int64_t rows, int64_t width, Block a, Block b, Block output);
  // Multiplies each row by its mask.
  void (*multiply_masks)(int64_t rows, int64_t width, const MaskRows& masks, Block x);
  // output += a.
  void (*add)(int64_t rows, int64_t width, Block a, Block output);

  // `softmax` computes the softmax of each group of `group` columns in place. `softmax_gradient`
  // turns the gradient of the output into the gradient of the input.
  void (*softmax)(int64_t rows, int64_t groups, int64_t group, Block x);
  void (*softmax_gradient)(int64_t rows, int64_t groups, int64_t group, Block output,
                           Block gradient);

  // Returns the sum of the logistic losses of n logits, and writes the gradient of the logits,
  // multiplied by `scale`. For a device, `logistic_loss` is null, because the loss always runs on
  // the host.
  double (*logistic_loss)(int64_t n, const float* logits, const float* labels, float scale,
                          float* gradient);

  // Computes the dot products of all pairs (i, j) of the vectors [vectors, dim] of a row. The pairs
  // are (1, 0), (2, 0), (2, 1), ...: all pairs with j < i and, if `diagonal` is true, also the
  // pairs with j = i. If `adds` is true, the gradient loop adds the gradient of x to `gradient`.
  // `scratch` has `PairScratch` floats.
  void (*pair_dots)(int64_t rows, int64_t vectors, int64_t dim, bool diagonal, Block x,
                    float* scratch, Block output);
  void (*pair_dots_gradient)(int64_t rows, int64_t vectors, int64_t dim, bool diagonal, Block x,
                             Block output_gradient, float* scratch, bool adds, Block gradient);
  // Adds up the element-wise products of all pairs of a row's vectors [fields, dim].
  void (*pair_sums)(int64_t rows, int64_t fields, int64_t dim, Block x, Block output);
  void (*pair_sums_gradient)(int64_t rows, int64_t fields, int64_t dim, Block x,
                             Block output_gradient, bool adds, Block gradient);
  // For each row, writes the sum of the row's numbers to `output`, which has one column.
  void (*row_sums)(int64_t rows, int64_t width, Block x, Block output);

  // For each row, output [tasks, width] = gates [tasks, experts] units [experts, width].
  // `mix_units_gradient` computes the gradient of `units`, and `mix_gates_gradient` computes the
  // gradient of `gates`. If `adds` is true, these functions add to `gradient`, otherwise the
  // functions overwrite `gradient`.
  void (*mix)(int64_t rows, const MixtureShape& shape, Block units, Block gates, Block output);
  void (*mix_units_gradient)(int64_t rows, const MixtureShape& shape, Block gates,
                             Block output_gradient, bool adds, Block gradient);
  void (*mix_gates_gradient)(int64_t rows, const MixtureShape& shape, Block units,
                             Block output_gradient, bool adds, Block gradient);

  // `scale_groups` multiplies each group of `group` columns of x by one column of `scales`.
  // `scale_groups_gradient` computes the gradients of `scales` and x.
  void (*scale_groups)(int64_t rows, int64_t groups, int64_t group, Block scales, Block x,
                       Block output);
  void (*scale_groups_gradient)(int64_t rows, int64_t groups, int64_t group, Block scales, Block x,
                                Block gradient, Target of_scales, Target of_x);

  // For each row, `curves` computes a matrix [numbers, dim]. Row k of the matrix is curve k,
  // evaluated at number k. `curves_gradient` computes the gradient of x, and adds the gradient of
  // the knots to `sums`.
  void (*curves)(int64_t rows, const NumberCurves& curves, Block x, Block output);
  void (*curves_gradient)(int64_t rows, const NumberCurves& curves, Block x, Block gradient,
                          Target of_x, float* sums);
  // For each row, `waves` computes the vectors of all numbers: [numbers, dim]. `waves_gradient`
  // computes the gradient of x, and adds the gradients of the parameters to `sums`: first
  // frequencies, then weight, then bias.
  void (*waves)(int64_t rows, const NumberWaves& waves, Block x, float* scratch, Block output);
  void (*waves_gradient)(int64_t rows, const NumberWaves& waves, Block x, Block output,
                         Block gradient, float* scratch, Target of_x, float* sums);

  // Computes the gradients of x0, t and x from the gradient of x0 t + x. If x and x0 are the same
  // value, only one gradient is computed for x0 and x.
  void (*cross_combine_gradient)(int64_t rows, int64_t width, Block x0, Block t, Block gradient,
                                 Target of_x0, Target of_t, Target of_x);

  // Runs a cross network. `factor` is x, or a rounded copy of x if matrix products need rounded
  // factors. `products` [rows, layers] receives factor * weight^T.
  void (*cross_rows)(int64_t rows, const CrossRows& cross, Block x, Block factor, Block products,
                     Block output);
  // Computes the gradient of x. Adds the gradients of weight, bias and constants to `sums`, in
  // which the three arrays lie one after another.
  void (*cross_rows_gradient)(int64_t rows, const CrossRows& cross, Block x, Block factor,
                              Block products, Block gradient, Target of_x, float* sums);

  // Divides `width` numbers by `divisor` in place.
  void (*divide)(int64_t width, float divisor, float* x);
  // Adds the sum of (x[r][j] - mean[j])^2 over all rows r to sums[j], for batch normalization.
  void (*squared_deviations)(int64_t rows, int64_t width, Block x, const float* mean, float* sums);
  // output = a((x - mean) scale + beta). If there are masks, the output is also multiplied by the
  // row's mask. The activation must not be gelu.
  void (*normalize)(Activation a, int64_t rows, int64_t width, Block x, const Normalizer& norm,
                    const MaskRows& masks, Block output);
  // Computes the gradient of the activation's input: result = a'(output) * gradient. If there are
  // masks, the result is also multiplied by the row's mask. Adds the column sums of `result` to
  // `sums`, and the column sums of the products of `result` and x - mean to `products`. `result`
  // may be the same memory as `gradient`.
  void (*normalized_gradient)(Activation a, int64_t rows, int64_t width, Block x, const float* mean,
                              const MaskRows& masks, Block output, Block gradient, float* sums,
                              float* products, Block result);
  // gradient = scale (gradient - shift - (x - mean) slope).
  void (*normalize_gradient)(int64_t rows, int64_t width, Block x, const float* mean,
                             const float* scale, const float* shift, const float* slope,
                             Block gradient);
};

// Returns the loops for the instruction set that ActiveKernels chooses.
const Elementwise& ActiveElementwise();

// Returns the loops for the instruction set `name`, or null if this CPU or build does not support
// that instruction set. For tests.
const Elementwise* FindElementwise(const char* name);

}  // namespace msrec
