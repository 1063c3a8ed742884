// SPDX-License-Identifier: Apache-2.0
#include "sequence/target_blocks.h"

#include <cmath>

#include "util/aligned.h"
#include "util/bytes.h"

namespace msrec {
namespace {

constexpr int64_t kMostBlockRows = 256;
constexpr int64_t kLeastBlockRows = 16;

// A small number of rows is cut into about 8 blocks.
int64_t BlockSize(int64_t rows) {
  return std::clamp(RoundUp((rows + 7) / 8, kLeastBlockRows), kLeastBlockRows, kMostBlockRows);
}

}  // namespace

RowBlocks::RowBlocks(int64_t n)
    : rows(n), size(BlockSize(n)), blocks((n + BlockSize(n) - 1) / BlockSize(n)) {}

int64_t TargetRows(int64_t values) {
  const RowBlocks blocks(values);
  return blocks.blocks * blocks.size;
}

float* BlockMemory(int place, int64_t floats) {
  thread_local AlignedMemory memory[6];
  return static_cast<float*>(memory[place].AtLeast(sizeof(float) * static_cast<size_t>(floats)));
}

void ClearRows(int64_t count, int64_t rows, int64_t width, float* x) {
  std::fill(x + count * width, x + rows * width, 0.0f);
}

SplitWeight::SplitWeight(int64_t width, int64_t dim, const float* weight)
    : pairs(static_cast<size_t>(2 * dim * width)), candidates(static_cast<size_t>(dim * width)) {
  for (int64_t i = 0; i < width; ++i) {
    const float* of_candidate = weight + i * 4 * dim;
    const float* of_value = of_candidate + dim;
    const float* of_difference = of_value + dim;
    const float* of_product = of_difference + dim;
    float* pair = pairs.data() + i * 2 * dim;
    for (int64_t c = 0; c < dim; ++c) {
      pair[c] = of_value[c] - of_difference[c];
      pair[dim + c] = of_product[c];
      candidates[static_cast<size_t>(i * dim + c)] = of_candidate[c] + of_difference[c];
    }
  }
}

std::vector<std::unique_ptr<BlockProducts>> LayerProducts(BlockProducts::Pass pass,
                                                          const TargetForm& form,
                                                          const SplitWeight& split, int64_t rows) {
  std::vector<std::unique_ptr<BlockProducts>> products;
  for (size_t k = 0; k < form.layers.size(); ++k) {
    const TargetLayer& layer = form.layers[k];
    const LinearWeight weight =
        k == 0 ? LinearWeight{split.pairs.data(), layer.width, 2 * form.dim}
               : LinearWeight{layer.weight, layer.width, form.layers[k - 1].width};
    products.push_back(std::make_unique<BlockProducts>(pass, form.precision, rows, weight));
  }
  return products;
}

void CopyBlock(const RowBlocks& blocks, int64_t block, int64_t width, const float* from,
               float* to) {
  const int64_t count = blocks.count(block);
  std::copy_n(from + blocks.first(block) * width, count * width, to);
  ClearRows(count, blocks.size, width, to);
}

void PairBlock(const TargetForm& form, const Lists& lists, const TargetInputs& inputs,
               const RowBlocks& blocks, int64_t block, float* pairs) {
  const int64_t dim = form.dim, first = blocks.first(block), count = blocks.count(block);
  ForPieces(lists, first, count, [&](int64_t i, int64_t begin, int64_t end) {
    ActiveSequenceKernels().pair_rows(end - begin, dim, inputs.candidates + i * dim,
                                      inputs.values + begin * dim,
                                      pairs + (begin - first) * 2 * dim);
  });
  ClearRows(count, blocks.size, 2 * dim, pairs);
}

TargetActivation::TargetActivation(const TargetForm& form, const TargetLayer& layer)
    : dice_(form.dice), layer_(layer) {
  if (!dice_) return;
  for (int64_t c = 0; c < layer.width; ++c) {
    inverse_.push_back(1.0f / std::sqrt(layer.variance[c] + form.epsilon));
  }
}

void TargetActivation::Forward(int64_t rows, const float* x, float* output, float* gates) const {
  const SequenceKernels& kernels = ActiveSequenceKernels();
  if (dice_) {
    const DiceColumns columns = {layer_.alpha, layer_.mean, inverse_.data()};
    kernels.dice_rows(rows, layer_.width, x, columns, output, gates);
  } else {
    kernels.prelu_rows(rows, layer_.width, x, layer_.alpha, output);
  }
}

void TargetActivation::Sums(int64_t rows, const float* x, const float* gates,
                            const float* of_output, float* sums) const {
  if (!dice_) return;
  const int64_t width = layer_.width;
  ActiveSequenceKernels().dice_sums(rows, width, x, {layer_.alpha, layer_.mean, inverse_.data()},
                                    gates, of_output, {sums, sums + width, sums + 2 * width});
}

void TargetActivation::Gradient(int64_t rows, const float* x, const float* of_output,
                                const float* means, float* of_x, float* sums) const {
  const SequenceKernels& kernels = ActiveSequenceKernels();
  const int64_t width = layer_.width;
  if (dice_) {
    auto* of_normal = const_cast<float*>(means);
    kernels.dice_gradient(rows, width, x, {layer_.alpha, layer_.mean, inverse_.data()}, of_output,
                          {of_normal, of_normal + width, nullptr}, of_x);
  } else {
    kernels.prelu_gradient(rows, width, x, layer_.alpha, of_output, of_x, sums + 2 * width);
  }
}

}  // namespace msrec
