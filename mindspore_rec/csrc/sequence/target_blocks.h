// SPDX-License-Identifier: Apache-2.0
//
// Divides the rows of a target attention into blocks. This file also contains the computations on
// one block. The forward pass and the gradient share these computations.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "sequence/block_products.h"
#include "sequence/lists.h"
#include "sequence/sequence_kernels.h"
#include "sequence/target_form.h"

namespace msrec {

// Cuts `rows` rows into blocks of equal size; the last block may have fewer rows.
struct RowBlocks {
  explicit RowBlocks(int64_t rows);
  int64_t first(int64_t block) const { return block * size; }
  int64_t count(int64_t block) const { return std::min(size, rows - first(block)); }

  int64_t rows, size, blocks;
};

// Returns the number of rows of the matrices x_k for N values: N, rounded up to whole blocks.
int64_t TargetRows(int64_t values);

// Returns thread-local memory for at least `floats` floats. Each `place` from 0 to 5 has its own
// memory, which is valid until the thread calls BlockMemory with the same `place` again.
float* BlockMemory(int place, int64_t floats);

// Sets the rows [count, rows) to 0.
void ClearRows(int64_t count, int64_t rows, int64_t width, float* x);

// Splits the rows [first, first + count) by list, and calls fn(list, begin, end) for the rows
// [begin, end) of each list.
template <typename Fn>
void ForPieces(const Lists& lists, int64_t first, int64_t count, const Fn& fn) {
  const int64_t last = first + count;
  for (int64_t i = lists.ListOf(first); i < lists.count() && lists.begin(i) < last; ++i) {
    const int64_t begin = std::max(first, lists.begin(i));
    const int64_t end = std::min(last, lists.begin(i) + lists.length(i));
    if (begin < end) fn(i, begin, end);
  }
}

// The first layer's weight, split: `pairs` [width, 2 dim] multiplies [v, c v], and `candidates`
// [width, dim] multiplies c.
struct SplitWeight {
  SplitWeight(int64_t width, int64_t dim, const float* weight);
  std::vector<float> pairs, candidates;
};

// Returns one BlockProducts per hidden layer, for blocks of `rows` rows. The products of the first
// layer use the weight `split.pairs`.
std::vector<std::unique_ptr<BlockProducts>> LayerProducts(BlockProducts::Pass pass,
                                                          const TargetForm& form,
                                                          const SplitWeight& split, int64_t rows);

// Copies the rows of a block to `to`, and sets the remaining rows of `to` to 0.
void CopyBlock(const RowBlocks& blocks, int64_t block, int64_t width, const float* from, float* to);

// Writes the pairs of a block to `pairs` [size, 2 dim], and sets the remaining rows of `pairs` to
// 0.
void PairBlock(const TargetForm& form, const Lists& lists, const TargetInputs& inputs,
               const RowBlocks& blocks, int64_t block, float* pairs);

// Dice or PReLU of one layer.
class TargetActivation {
 public:
  TargetActivation(const TargetForm& form, const TargetLayer& layer);

  // Writes the outputs. Dice also writes its gates [rows, width] for `Sums`, unless `gates` is
  // null.
  void Forward(int64_t rows, const float* x, float* output, float* gates = nullptr) const;
  // For each column, computes three sums over the rows, and adds the sums to `sums` [3 width]:
  // first the two sums that the gradient of the inputs needs, then the gradient of alpha. For
  // PReLU, `Sums` adds nothing, and `Gradient` adds the gradient of alpha.
  void Sums(int64_t rows, const float* x, const float* gates, const float* of_output,
            float* sums) const;
  // Writes the gradient of the inputs. `means` [2 width] contains the first two sums that `Sums`
  // computes, divided by the number of rows. If the moments are constants, `means` contains zeros.
  void Gradient(int64_t rows, const float* x, const float* of_output, const float* means,
                float* of_x, float* sums) const;

 private:
  const bool dice_;
  const TargetLayer& layer_;
  std::vector<float> inverse_;
};

}  // namespace msrec
