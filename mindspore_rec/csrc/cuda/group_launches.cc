// SPDX-License-Identifier: Apache-2.0
//
// Launches the device kernels that treat groups of a row's columns: softmax, gates, pairs and
// mixtures.
#include <stdexcept>

#include "cuda/launches.h"

namespace msrec {
namespace kernel_loops {
namespace {

void SoftmaxGroups(int64_t rows, int64_t groups, int64_t group, Block x) {
  Launch("Softmax", rows * groups, kernels::SoftmaxArguments{groups, group, RowsOf(x), {}});
}

void SoftmaxGradientGroups(int64_t rows, int64_t groups, int64_t group, Block output,
                           Block gradient) {
  Launch("SoftmaxGradient", rows * groups,
         kernels::SoftmaxArguments{groups, group, RowsOf(output), RowsOf(gradient)});
}

// ---------------------------------------------------------------- gates

void LaunchScale(int64_t rows, int64_t groups, int64_t group, const Block& scales, const Block& x,
                 const Target& to) {
  const int64_t width = groups * group;
  Launch("ScaleGroups", rows * width,
         kernels::ScaleGroupsArguments{width, group, to.adds, RowsOf(scales), RowsOf(x),
                                       RowsOf(to.block)});
}

void ScaleGroupRows(int64_t rows, int64_t groups, int64_t group, Block scales, Block x,
                    Block output) {
  LaunchScale(rows, groups, group, scales, x, {output, false});
}

// Returns true if `target` is a single row, to which the gradients of all rows are added.
bool IsOfAllRows(const Target& target, int64_t rows) {
  if (target.block.ld != 0 || rows <= 1) return false;
  if (!target.adds) throw std::logic_error("a sum over rows is added to what is there");
  return true;
}

void ScaledGradient(int64_t rows, int64_t groups, int64_t group, const Block& scales,
                    const Block& gradient, const Target& of_x) {
  if (!IsOfAllRows(of_x, rows)) {
    LaunchScale(rows, groups, group, scales, gradient, of_x);
    return;
  }
  const kernels::Chunks chunks = ChunksOf(rows, groups * group);
  float* partial = ScratchFloats(ThreadsOf(chunks));
  Launch("ScaledSums", ThreadsOf(chunks),
         kernels::ScaledSumsArguments{chunks, group, RowsOf(scales), RowsOf(gradient), partial});
  JoinChunks(chunks, partial, of_x.block.data);
}

void ScalesGradient(int64_t rows, int64_t groups, int64_t group, const Block& x,
                    const Block& gradient, const Target& of_scales) {
  const auto dots = [&](const Target& to) {
    Launch("GroupDots", rows * groups,
           kernels::GroupDotsArguments{groups, group, to.adds, RowsOf(gradient), RowsOf(x),
                                       RowsOf(to.block)});
  };
  if (!IsOfAllRows(of_scales, rows)) {
    dots(of_scales);
    return;
  }
  const Block rows_dots = {ScratchFloats(rows * groups + ThreadsOf(ChunksOf(rows, groups))),
                           groups};
  dots({rows_dots, false});
  AddColumns(rows, groups, rows_dots, rows_dots.row(rows), of_scales.block.data);
}

void ScaleGroupsGradientRows(int64_t rows, int64_t groups, int64_t group, Block scales, Block x,
                             Block gradient, Target of_scales, Target of_x) {
  ScalesGradient(rows, groups, group, x, gradient, of_scales);
  ScaledGradient(rows, groups, group, scales, gradient, of_x);
}

// ---------------------------------------------------------------- pairs

kernels::PairArguments PairsOf(int64_t vectors, int64_t dim, const Block& x, const Block& output) {
  return {vectors, dim, 0, false, false, RowsOf(x), RowsOf(output), {}};
}

void PairDotRows(int64_t rows, int64_t vectors, int64_t dim, bool diagonal, Block x, float*,
                 Block output) {
  kernels::PairArguments arguments = PairsOf(vectors, dim, x, output);
  arguments.diagonal = diagonal;
  arguments.pairs = diagonal ? vectors * (vectors + 1) / 2 : vectors * (vectors - 1) / 2;
  Launch("PairDots", rows * arguments.pairs, arguments);
}

void PairDotsGradientRows(int64_t rows, int64_t vectors, int64_t dim, bool diagonal, Block x,
                          Block output_gradient, float*, bool adds, Block gradient) {
  kernels::PairArguments arguments = PairsOf(vectors, dim, x, output_gradient);
  arguments.diagonal = diagonal;
  arguments.adds = adds;
  arguments.gradient = RowsOf(gradient);
  Launch("PairDotsGradient", rows * vectors * dim, arguments);
}

void PairSumRows(int64_t rows, int64_t fields, int64_t dim, Block x, Block output) {
  Launch("PairSums", rows * dim, PairsOf(fields, dim, x, output));
}

void PairSumsGradientRows(int64_t rows, int64_t fields, int64_t dim, Block x, Block output_gradient,
                          bool adds, Block gradient) {
  kernels::PairArguments arguments = PairsOf(fields, dim, x, output_gradient);
  arguments.adds = adds;
  arguments.gradient = RowsOf(gradient);
  Launch("PairSumsGradient", rows * dim, arguments);
}

void SumRows(int64_t rows, int64_t width, Block x, Block output) {
  Launch("RowSums", rows, kernels::MapArguments{width, RowsOf(x), RowsOf(output)});
}

// ---------------------------------------------------------------- mixtures

kernels::MixArguments MixOf(const MixtureShape& shape, const Block& output) {
  return {shape.tasks, shape.experts, shape.width, false, {}, {}, RowsOf(output), {}};
}

void MixRows(int64_t rows, const MixtureShape& shape, Block units, Block gates, Block output) {
  kernels::MixArguments arguments = MixOf(shape, output);
  arguments.units = RowsOf(units);
  arguments.gates = RowsOf(gates);
  Launch("Mix", rows * shape.tasks * shape.width, arguments);
}

void MixUnitsGradientRows(int64_t rows, const MixtureShape& shape, Block gates,
                          Block output_gradient, bool adds, Block gradient) {
  kernels::MixArguments arguments = MixOf(shape, output_gradient);
  arguments.adds = adds;
  arguments.gates = RowsOf(gates);
  arguments.gradient = RowsOf(gradient);
  Launch("MixUnitsGradient", rows * shape.experts * shape.width, arguments);
}

void MixGatesGradientRows(int64_t rows, const MixtureShape& shape, Block units,
                          Block output_gradient, bool adds, Block gradient) {
  kernels::MixArguments arguments = MixOf(shape, output_gradient);
  arguments.adds = adds;
  arguments.units = RowsOf(units);
  arguments.gradient = RowsOf(gradient);
  Launch("MixGatesGradient", rows * shape.tasks * shape.experts, arguments);
}

}  // namespace

void SetGroupLoops(Elementwise* loops) {
  loops->softmax = SoftmaxGroups;
  loops->softmax_gradient = SoftmaxGradientGroups;
  loops->scale_groups = ScaleGroupRows;
  loops->scale_groups_gradient = ScaleGroupsGradientRows;
  loops->pair_dots = PairDotRows;
  loops->pair_dots_gradient = PairDotsGradientRows;
  loops->pair_sums = PairSumRows;
  loops->pair_sums_gradient = PairSumsGradientRows;
  loops->row_sums = SumRows;
  loops->mix = MixRows;
  loops->mix_units_gradient = MixUnitsGradientRows;
  loops->mix_gates_gradient = MixGatesGradientRows;
}

}  // namespace kernel_loops
}  // namespace msrec
