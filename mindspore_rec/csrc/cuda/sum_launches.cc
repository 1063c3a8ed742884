// SPDX-License-Identifier: Apache-2.0
//
// Launches the device kernels that add up columns.
#include "cuda/launches.h"

namespace msrec {
namespace kernel_loops {

void JoinChunks(const kernels::Chunks& chunks, const float* partial, float* sums) {
  if (chunks.rows == 0) return;
  Launch("JoinChunks", chunks.width,
         kernels::JoinChunksArguments{chunks.width, CountOf(chunks), partial, sums});
}

void AddColumns(int64_t rows, int64_t width, const Block& x, float* partial, float* sums) {
  const kernels::Chunks chunks = ChunksOf(rows, width);
  Launch("ChunkSum", ThreadsOf(chunks), kernels::ChunkSumArguments{chunks, RowsOf(x), partial});
  JoinChunks(chunks, partial, sums);
}

namespace {

void SumColumns(int64_t rows, int64_t width, Block x, float* sums) {
  AddColumns(rows, width, x, ScratchFloats(ThreadsOf(ChunksOf(rows, width))), sums);
}

void ActivationGradientRows(Activation a, int64_t rows, int64_t width, Block output, Block gradient,
                            float* bias_sums) {
  if (a == Activation::kNone && bias_sums == nullptr) return;
  const bool sums = bias_sums != nullptr;
  const kernels::Chunks chunks = sums ? ChunksOf(rows, width) : SingleRows(rows, width);
  float* partial = sums ? ScratchFloats(ThreadsOf(chunks)) : nullptr;
  Launch("ActivationGradient", ThreadsOf(chunks),
         kernels::ActivationGradientArguments{static_cast<int32_t>(a), chunks, RowsOf(output),
                                              RowsOf(gradient), partial});
  if (sums) JoinChunks(chunks, partial, bias_sums);
}

void HalfActivationGradientRows(Activation a, int64_t rows, int64_t width, const uint16_t* output,
                                int64_t output_ld, Block gradient, uint16_t* result,
                                int64_t result_ld, float* bias_sums) {
  const bool sums = bias_sums != nullptr;
  const kernels::Chunks chunks = sums ? ChunksOf(rows, width) : SingleRows(rows, width);
  float* partial = sums ? ScratchFloats(ThreadsOf(chunks)) : nullptr;
  Launch("HalfActivationGradient", ThreadsOf(chunks),
         kernels::HalfActivationGradientArguments{static_cast<int32_t>(a), chunks,
                                                  RowsOf(output, output_ld), RowsOf(gradient),
                                                  RowsOf(result, result_ld), partial});
  if (sums) JoinChunks(chunks, partial, bias_sums);
}

void SumSquaredDeviations(int64_t rows, int64_t width, Block x, const float* mean, float* sums) {
  const kernels::Chunks chunks = ChunksOf(rows, width);
  float* partial = ScratchFloats(ThreadsOf(chunks));
  Launch("ChunkSquares", ThreadsOf(chunks),
         kernels::ChunkSquaresArguments{chunks, RowsOf(x), mean, partial});
  JoinChunks(chunks, partial, sums);
}

void NormalizedGradientRows(Activation a, int64_t rows, int64_t width, Block x, const float* mean,
                            const MaskRows& masks, Block output, Block gradient, float* sums,
                            float* products, Block result) {
  const kernels::Chunks chunks = ChunksOf(rows, width);
  float* of_sums = ScratchFloats(2 * ThreadsOf(chunks));
  float* of_products = of_sums + ThreadsOf(chunks);
  Launch("NormalizedGradient", ThreadsOf(chunks),
         kernels::NormalizedGradientArguments{static_cast<int32_t>(a), chunks, RowsOf(x), mean,
                                              MasksOf(masks), RowsOf(output), RowsOf(gradient),
                                              RowsOf(result), of_sums, of_products});
  JoinChunks(chunks, of_sums, sums);
  JoinChunks(chunks, of_products, products);
}

}  // namespace

void SetSumLoops(Elementwise* loops) {
  loops->column_sums = SumColumns;
  loops->activation_gradient = ActivationGradientRows;
  loops->activation_gradient_bfloat16 = HalfActivationGradientRows;
  loops->squared_deviations = SumSquaredDeviations;
  loops->normalized_gradient = NormalizedGradientRows;
}

}  // namespace kernel_loops
}  // namespace msrec
