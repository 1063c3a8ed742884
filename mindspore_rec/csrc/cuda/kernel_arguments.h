// SPDX-License-Identifier: Apache-2.0
//
// Arguments of the kernels. The code that launches kernels and the kernels themselves include this
// file. The host's compiler and NVRTC compile this file. NVRTC has no standard headers.
//
// A kernel over rows has one thread for each element of [rows, width]. For any other kernel, the
// comment of the kernel or of its arguments states the number of threads.
#pragma once

#ifdef __CUDACC_RTC__
using int32_t = int;
using int64_t = long long;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
#else
#include <cstdint>
#endif

namespace msrec {
namespace kernels {

// A block of rows; rows begin `ld` elements apart.
struct Rows {
  float* data;
  int64_t ld;
};

struct HalfRows {
  uint16_t* data;
  int64_t ld;
};

// The fields are as in `MaskRows`, but `first` is always below `count`.
struct Masks {
  const float* data;
  int64_t first, count;
};

// Rows that are split into chunks of `rows_each` rows; the last chunk contains the remaining rows.
// A kernel has one thread for each column of each chunk.
struct Chunks {
  int64_t rows, width, rows_each;
};

// ---------------------------------------------------------------- rows

// x = a(x + bias).
struct ActivateArguments {
  int32_t activation;
  const float* bias;  // may be null
  int64_t width;
  Rows x;
};

// x = x / divisor, with one thread for each element.
struct DivideArguments {
  float divisor;
  float* x;
};

struct ClearArguments {
  int64_t width;
  Rows x;
};

// Each new element of `to` is computed from the old element of `to` and from the element of `from`
// at the same place. In the kernel Spread, `from` has only one column. RowSums reads all columns of
// a row.
struct MapArguments {
  int64_t width;
  Rows from, to;
};

// Rows `x` in float32, and rows `half` with the same numbers in bfloat16.
struct HalfArguments {
  int64_t width;
  Rows x;
  HalfRows half;
};

struct MultiplyAddArguments {
  int64_t width;
  Rows a, b, c, output;
};

struct AddProductArguments {
  int64_t width;
  Rows a, b, output;
};

struct MultiplyMasksArguments {
  int64_t width;
  Masks masks;
  Rows x;
};

// ---------------------------------------------------------------- sums of columns

// `partial` [chunks, width] receives the column sums of each chunk, unless `partial` is null.
struct ActivationGradientArguments {
  int32_t activation;
  Chunks chunks;
  Rows output, gradient;
  float* partial;
};

struct HalfActivationGradientArguments {
  int32_t activation;
  Chunks chunks;
  HalfRows output;
  Rows gradient;
  HalfRows result;
  float* partial;
};

struct ChunkSumArguments {
  Chunks chunks;
  Rows x;
  float* partial;
};

// Adds the partial sums of all chunks to sums[column], in the order of the chunks. The kernel has
// one thread for each column.
struct JoinChunksArguments {
  int64_t width, chunks;
  const float* partial;
  float* sums;
};

// ---------------------------------------------------------------- batch normalization

struct ChunkSquaresArguments {
  Chunks chunks;
  Rows x;
  const float* mean;
  float* partial;
};

struct NormalizeArguments {
  int32_t activation;
  int64_t width;
  Rows x;
  const float *mean, *scale, *beta;
  Masks masks;
  Rows output;
};

struct NormalizedGradientArguments {
  int32_t activation;
  Chunks chunks;
  Rows x;
  const float* mean;
  Masks masks;
  Rows output, gradient, result;
  float *sums, *products;  // sums of the chunks
};

struct NormalizeGradientArguments {
  int64_t width;
  Rows x;
  const float *mean, *scale, *shift, *slope;
  Rows gradient;
};

// ---------------------------------------------------------------- groups of columns

// The kernel has one thread for each group of a row.
struct SoftmaxArguments {
  int64_t groups, group;
  Rows x, gradient;
};

// Multiplies each group of x by the group's column of `scales`. Writes the products to `target` or,
// if `adds` is true, adds the products to `target`.
struct ScaleGroupsArguments {
  int64_t width, group;
  bool adds;
  Rows scales, x, target;
};

// Computes the dot product of a and b for each group of a row. Writes the product to `target` or,
// if `adds` is true, adds the product to `target`. The kernel has one thread for each group of a
// row.
struct GroupDotsArguments {
  int64_t groups, group;
  bool adds;
  Rows a, b, target;
};

// Multiplies each group of x by the group's column of `scales`, sums the products over the rows of
// each chunk, and writes the sums to `partial`.
struct ScaledSumsArguments {
  Chunks chunks;
  int64_t group;
  Rows scales, x;
  float* partial;
};

// ---------------------------------------------------------------- cross networks

// If `of_x` is null, x and x0 are the same matrix, and `of_x0` receives the sum of both gradients.
struct CrossCombineArguments {
  int64_t width;
  Rows x0, t, gradient;
  Rows of_x0, of_t, of_x;
  bool adds_x0, adds_t, adds_x;
};

// The kernel computes each row's alpha in the last layer, with one thread per row.
struct CrossAlphasArguments {
  int64_t layers;
  Rows products;
  const float* constants;
  float* alphas;
};

// output = alpha x + bias, with one alpha per row.
struct CrossOutputArguments {
  int64_t width;
  Rows x;
  const float *alphas, *bias;
  Rows output;
};

// Each row has kDotParts threads; each thread computes one part of the dot product of a and b.
struct RowDotsArguments {
  int64_t width;
  Rows a, b;
  float* parts;  // [rows, kDotParts]
};
constexpr int64_t kDotParts = 8;

// The kernel has one thread for each row. For each row, `dots` contains the parts of the dot
// product of gradient and x, as RowDots writes them.
struct CrossAlphasGradientArguments {
  int64_t layers;
  bool rounds;
  Rows products;
  const float *constants, *dots;
  float* alphas;                      // [rows]
  float *of_products, *of_constants;  // [rows, layers]
};

struct CrossInputGradientArguments {
  int64_t width, layers;
  const float *weight, *alphas, *of_products;
  Rows gradient, of_x;
  bool adds;
};

// ---------------------------------------------------------------- vectors of numbers

// In a forward kernel, `output` is the layer's output. In a gradient kernel, `output` is the
// gradient of the layer's output. CurvesInputGradient has one thread for each number of a row.
// KnotSums writes the sums over the rows of each chunk to `partial`. KnotSums has chunks * size
// threads, where size is the number of floats in `knots`.
struct CurvesArguments {
  int64_t numbers, dim, bins;
  const float* knots;
  Rows x, output, of_x;
  bool adds;
  Chunks chunks;
  float* partial;
};

// As CurvesArguments. FrequencySums, WaveWeightSums and WaveBiasSums have chunks * size threads,
// where size is the number of floats of the parameter.
struct WavesArguments {
  int64_t numbers, dim, count;
  const float *frequencies, *weight, *bias;
  Rows x, output, gradient, of_x;
  bool adds;
  Chunks chunks;
  float* partial;
};

// ---------------------------------------------------------------- pairs and mixtures

// In a forward kernel, `output` is the layer's output. In a gradient kernel, `output` is the
// gradient of the layer's output.
struct PairArguments {
  int64_t vectors, dim, pairs;
  bool diagonal, adds;
  Rows x, output, gradient;
};

struct MixArguments {
  int64_t tasks, experts, width;
  bool adds;
  Rows units, gates, output, gradient;
};

}  // namespace kernels
}  // namespace msrec
