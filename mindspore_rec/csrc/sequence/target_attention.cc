// SPDX-License-Identifier: Apache-2.0
#include "sequence/target_attention.h"

#include <memory>
#include <vector>

#include "sequence/activations.h"
#include "sequence/block_products.h"
#include "sequence/pooling.h"
#include "sequence/target_blocks.h"

namespace msrec {
namespace {

using Pass = BlockProducts::Pass;

// The forward pass of one batch.
class TargetForward {
 public:
  TargetForward(const TargetForm& form, const Lists& lists, const TargetInputs& inputs,
                const TargetKept& kept, ThreadPool* pool)
      : form_(form),
        lists_(lists),
        inputs_(inputs),
        kept_(kept),
        pool_(pool),
        blocks_(lists.values()),
        split_(form.layers[0].width, form.dim, form.layers[0].weight) {}

  void Run() {
    if (blocks_.rows == 0) return;
    products_ = LayerProducts(Pass::kForward, form_, split_, blocks_.size);
    ByList();
    const size_t last = form_.layers.size();
    for (size_t k = 0; k < last; ++k) {
      if (Waits()) {
        ForBlocks([&](int64_t block) { Layer(k, block); });
        Moments(blocks_.rows, form_.layers[k].width, InputsOf(k), form_.layers[k].mean,
                form_.layers[k].variance, pool_);
      }
      activations_.emplace_back(form_, form_.layers[k]);
    }
    ForBlocks([&](int64_t block) {
      for (size_t k = 0; k < last && !Waits(); ++k) Layer(k, block);
      Scores(block);
    });
  }

 private:
  // True if each activation needs statistics of all rows of the batch.
  bool Waits() const { return form_.dice && form_.of_batch; }
  template <typename Fn>
  void ForBlocks(const Fn& fn) {
    pool_->ParallelFor(blocks_.blocks, fn);
  }
  float* InputsOf(size_t k) const {
    float* x = kept_.inputs;
    for (size_t i = 0; i < k; ++i) x += blocks_.blocks * blocks_.size * form_.layers[i].width;
    return x;
  }
  float* BlockOf(size_t k, int64_t block) const {
    return InputsOf(k) + blocks_.first(block) * form_.layers[k].width;
  }

  // Computes the part of x_1 that depends only on the list: W c + b.
  void ByList() {
    const RowBlocks lists(lists_.count());
    const int64_t dim = form_.dim, width = form_.layers[0].width;
    const BlockProducts products(Pass::kForward, form_.precision, lists.size,
                                 {split_.candidates.data(), width, dim});
    by_list_.resize(static_cast<size_t>(lists.blocks * lists.size * width));
    pool_->ParallelFor(lists.blocks, [&](int64_t block) {
      float* candidates = BlockMemory(0, lists.size * dim);
      const int64_t first = lists.first(block), count = lists.count(block);
      CopyBlock(lists, block, dim, inputs_.candidates, candidates);
      float* rows = by_list_.data() + first * width;
      products.Forward(products.Factor(0, dim, candidates), rows);
      ActiveSequenceKernels().add_row(count, width, form_.layers[0].bias, rows);
    });
  }

  // Computes x_(k+1), the input of an activation, for the rows of a block.
  void Layer(size_t k, int64_t block) {
    const int64_t first = blocks_.first(block), count = blocks_.count(block);
    const int64_t width = form_.layers[k].width;
    float* x = BlockOf(k, block);
    if (k == 0) {
      float* pairs = BlockMemory(0, blocks_.size * 2 * form_.dim);
      PairBlock(form_, lists_, inputs_, blocks_, block, pairs);
      products_[0]->Forward(products_[0]->Factor(0, 2 * form_.dim, pairs), x);
      ForPieces(lists_, first, count, [&](int64_t i, int64_t begin, int64_t end) {
        ActiveSequenceKernels().add_row(end - begin, width, by_list_.data() + i * width,
                                        x + (begin - first) * width);
      });
      return;
    }
    const int64_t before = form_.layers[k - 1].width;
    const float* output = Activate(k - 1, block);
    products_[k]->Forward(products_[k]->Factor(0, before, output), x);
    ActiveSequenceKernels().add_row(count, width, form_.layers[k].bias, x);
  }

  const float* Activate(size_t k, int64_t block) {
    const int64_t width = form_.layers[k].width, count = blocks_.count(block);
    float* output = BlockMemory(0, blocks_.size * width);
    activations_[k].Forward(count, BlockOf(k, block), output);
    ClearRows(count, blocks_.size, width, output);
    return output;
  }

  void Scores(int64_t block) {
    const size_t last = form_.layers.size() - 1;
    const float* output = Activate(last, block);
    ActiveSequenceKernels().dot_rows(blocks_.count(block), form_.layers[last].width, output,
                                     form_.last_weight, form_.last_bias,
                                     kept_.weights + blocks_.first(block));
  }

  const TargetForm& form_;
  const Lists& lists_;
  const TargetInputs& inputs_;
  const TargetKept& kept_;
  ThreadPool* const pool_;
  const RowBlocks blocks_;
  const SplitWeight split_;
  std::vector<std::unique_ptr<BlockProducts>> products_;
  std::vector<TargetActivation> activations_;
  std::vector<float> by_list_;  // [B, width of x_1]
};

}  // namespace

void TargetAttend(const TargetForm& form, const Lists& lists, const TargetInputs& inputs,
                  const TargetKept& kept, float* sums, ThreadPool* pool) {
  TargetForward(form, lists, inputs, kept, pool).Run();
  PoolValues({form.dim, form.softmax}, lists, inputs.values, kept.weights, sums, pool);
}

}  // namespace msrec
