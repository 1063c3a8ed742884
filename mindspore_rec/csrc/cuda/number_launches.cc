// SPDX-License-Identifier: Apache-2.0
//
// Launches the device kernels that compute vectors from numbers.
#include "cuda/launches.h"

namespace msrec {
namespace kernel_loops {
namespace {

// Starts a kernel that writes the sums over the rows of each chunk, and then adds the sums of all
// chunks to `sums`.
template <typename Arguments>
void AddSums(const char* kernel, int64_t rows, int64_t width, Arguments arguments, float* sums) {
  arguments.chunks = ChunksOf(rows, width);
  arguments.partial = ScratchFloats(ThreadsOf(arguments.chunks));
  Launch(kernel, ThreadsOf(arguments.chunks), arguments);
  JoinChunks(arguments.chunks, arguments.partial, sums);
}

kernels::CurvesArguments ArgumentsOf(const NumberCurves& curves, const Block& x,
                                     const Block& output, const Target& of_x) {
  return {curves.numbers, curves.dim,         curves.bins, curves.knots, RowsOf(x),
          RowsOf(output), RowsOf(of_x.block), of_x.adds,   {},           nullptr};
}

void CurveRows(int64_t rows, const NumberCurves& curves, Block x, Block output) {
  Launch("Curves", rows * curves.numbers * curves.dim, ArgumentsOf(curves, x, output, {}));
}

void CurvesGradientRows(int64_t rows, const NumberCurves& curves, Block x, Block gradient,
                        Target of_x, float* sums) {
  const kernels::CurvesArguments arguments = ArgumentsOf(curves, x, gradient, of_x);
  Launch("CurvesInputGradient", rows * curves.numbers, arguments);
  AddSums("KnotSums", rows, curves.knot_floats(), arguments, sums);
}

kernels::WavesArguments ArgumentsOf(const NumberWaves& waves, const Block& x, const Block& output,
                                    const Block& gradient, const Target& of_x) {
  return {waves.numbers, waves.dim, waves.count,    waves.frequencies, waves.weight,
          waves.bias,    RowsOf(x), RowsOf(output), RowsOf(gradient),  RowsOf(of_x.block),
          of_x.adds,     {},        nullptr};
}

void WaveRows(int64_t rows, const NumberWaves& waves, Block x, float*, Block output) {
  Launch("Waves", rows * waves.numbers * waves.dim, ArgumentsOf(waves, x, output, {}, {}));
}

void WavesGradientRows(int64_t rows, const NumberWaves& waves, Block x, Block output,
                       Block gradient, float*, Target of_x, float* sums) {
  const kernels::WavesArguments arguments = ArgumentsOf(waves, x, output, gradient, of_x);
  Launch("WavesInputGradient", rows * waves.numbers, arguments);
  const int64_t frequencies = waves.numbers * waves.count;
  const int64_t weights = waves.dim * waves.waves();
  AddSums("FrequencySums", rows, frequencies, arguments, sums);
  AddSums("WaveWeightSums", rows, weights, arguments, sums + frequencies);
  AddSums("WaveBiasSums", rows, waves.dim, arguments, sums + frequencies + weights);
}

}  // namespace

void SetNumberLoops(Elementwise* loops) {
  loops->curves = CurveRows;
  loops->curves_gradient = CurvesGradientRows;
  loops->waves = WaveRows;
  loops->waves_gradient = WavesGradientRows;
}

}  // namespace kernel_loops
}  // namespace msrec
