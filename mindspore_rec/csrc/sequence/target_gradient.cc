// SPDX-License-Identifier: Apache-2.0
//
// The gradient of a target attention. Passes over the blocks go from the last layer to the first.
// Pass k computes the gradients of x_k, W_k, b_k and h_(k-1). Each task computes a range of blocks,
// and adds up the parameters' gradients over these blocks.
#include "sequence/target_gradient.h"

#include <memory>

#include "sequence/block_products.h"
#include "sequence/pooling.h"
#include "sequence/target_blocks.h"
#include "util/aligned.h"

namespace msrec {
namespace {

using Pass = BlockProducts::Pass;

// Places of BlockMemory.
enum { kFactor, kOfOutput, kOfInput, kOfPairs, kGates };

// Positions of one layer's gradients in the sums of a task.
struct LayerSums {
  int64_t weight;      // [width, width of the previous layer]; [width, 2 dim] for the first layer
  int64_t bias;        // [width]; the first layer has none
  int64_t activation;  // [3 width]: see TargetActivation::Sums
};

class TargetBackward {
 public:
  TargetBackward(const TargetForm& form, const Lists& lists, const TargetInputs& inputs,
                 const TargetKept& kept, const TargetGradient& gradient, float* memory,
                 ThreadPool* pool)
      : form_(form),
        lists_(lists),
        inputs_(inputs),
        kept_(kept),
        gradient_(gradient),
        pool_(pool),
        blocks_(lists.values()),
        split_(form.layers[0].width, form.dim, form.layers[0].weight),
        of_scores_(memory) {
    PlaceSums();
    for (size_t k = 0; k < form.layers.size(); ++k) {
      const int64_t width = form.layers[k].width;
      means_.emplace_back(static_cast<size_t>(2 * width), 0.0f);
      activations_.emplace_back(form, form.layers[k]);
    }
    products_ = LayerProducts(Pass::kGradient, form, split_, blocks_.size);
    float* next = memory + TargetRows(blocks_.rows);
    float* x = kept.inputs;
    for (size_t k = 0; k < form.layers.size(); ++k) {
      const int64_t size = TargetRows(blocks_.rows) * form.layers[k].width;
      xs_.push_back(x);
      x += size;
      if (k + 1 == form.layers.size()) break;
      of_outputs_.push_back(next);
      next += size;
    }
    const int64_t row = form.dim + form.layers[0].width;
    by_list_.assign(static_cast<size_t>(lists.count() * form.layers[0].width), 0.0f);
    edges_.assign(static_cast<size_t>(blocks_.blocks * 2 * row), 0.0f);
  }

  void Run(const float* of_sums) {
    PoolValuesGradient({form_.dim, form_.softmax}, lists_, kept_.weights, inputs_.values, of_sums,
                       of_scores_, gradient_.values, pool_);
    std::fill_n(gradient_.candidates, lists_.count() * form_.dim, 0.0f);
    const size_t last = form_.layers.size();
    if (form_.dice && form_.of_batch) {
      for (size_t k = last + 1; k-- > 0;) {
        ForTasks([&](float* sums, int64_t block, bool adds) { Step(k, sums, block, adds); });
        if (k > 0) Means(k - 1);
      }
    } else {
      ForTasks([&](float* sums, int64_t block, bool adds) {
        for (size_t k = last + 1; k-- > 0;) Step(k, sums, block, adds);
      });
    }
    AddEdges();
    OfParameters();
  }

 private:
  void PlaceSums() {
    for (const TargetLayer& layer : form_.layers) {
      sums_of_.push_back({0, cleared_, cleared_ + layer.width});
      cleared_ += 4 * layer.width;
    }
    last_sums_ = cleared_;
    cleared_ += form_.layers.back().width + 1;
    width_ = cleared_;
    int64_t before = 2 * form_.dim;
    for (size_t k = 0; k < sums_of_.size(); ++k) {
      sums_of_[k].weight = width_;
      width_ += form_.layers[k].width * before;
      before = form_.layers[k].width;
    }
    // There are at most 64 tasks, and fewer tasks if the sums of one task take much memory.
    constexpr int64_t kMostTasks = 64, kLeastTasks = 4, kMostFloats = 1 << 22;
    const int64_t tasks = std::clamp(kMostFloats / width_, kLeastTasks, kMostTasks);
    tasks_ = std::min(tasks, blocks_.blocks);
    thread_local AlignedMemory memory;
    sums_ =
        static_cast<float*>(memory.AtLeast(sizeof(float) * static_cast<size_t>(tasks_ * width_)));
    for (int64_t task = 0; task < tasks_; ++task) std::fill_n(SumsOf(task), cleared_, 0.0f);
  }

  float* SumsOf(int64_t task) const { return sums_ + task * width_; }

  // Calls step(sums, block, adds) for all blocks; `adds` is false for the first block of a task.
  template <typename Fn>
  void ForTasks(const Fn& step) {
    pool_->ParallelFor(tasks_, [&](int64_t task) {
      const int64_t first = task * blocks_.blocks / tasks_;
      const int64_t last = (task + 1) * blocks_.blocks / tasks_;
      for (int64_t block = first; block < last; ++block) step(SumsOf(task), block, block > first);
    });
  }

  float* BlockOf(float* matrix, size_t k, int64_t block) const {
    return matrix + blocks_.first(block) * form_.layers[k].width;
  }

  // Step k computes, for one block, the gradients of layer k from x_(k+1). Step n, where n is the
  // number of layers, computes the gradients of w and b from the gradients of the scores.
  void Step(size_t k, float* sums, int64_t block, bool adds) {
    const int64_t count = blocks_.count(block);
    const float* of_input = nullptr;
    if (k < form_.layers.size()) of_input = OfInput(k, sums, block);
    if (k == 0) {
      FirstLayer(sums, block, adds, of_input);
      return;
    }
    const TargetLayer& before = form_.layers[k - 1];
    const float* x = BlockOf(xs_[k - 1], k - 1, block);
    float* output = BlockMemory(kFactor, blocks_.size * before.width);
    float* gates = BlockMemory(kGates, blocks_.size * before.width);
    activations_[k - 1].Forward(count, x, output, gates);
    ClearRows(count, blocks_.size, before.width, output);
    float* of_output = nullptr;
    if (k == form_.layers.size()) {
      of_output = LastLayer(sums, block, output);
    } else {
      of_output = BlockOf(of_outputs_[k - 1], k - 1, block);
      const BlockProducts& products = *products_[k];
      const void* factor = products.Factor(0, form_.layers[k].width, of_input);
      products.Gradient(factor, products.Factor(1, before.width, output), adds,
                        sums + sums_of_[k].weight);
      products.Backward(factor, of_output);
    }
    activations_[k - 1].Sums(count, x, gates, of_output, sums + sums_of_[k - 1].activation);
  }

  // Returns the gradient of the last layer's output for a block, and adds the block's part of the
  // gradients of `last_weight` and `last_bias` to `sums`.
  float* LastLayer(float* sums, int64_t block, const float* output) {
    const SequenceKernels& kernels = ActiveSequenceKernels();
    const int64_t count = blocks_.count(block), width = form_.layers.back().width;
    const float* of_scores = of_scores_ + blocks_.first(block);
    float* last = sums + last_sums_;
    kernels.sum_weighted(count, width, of_scores, output, last);
    kernels.sum_rows(count, 1, of_scores, last + width);
    return OfLastOutput(block);
  }

  float* OfLastOutput(int64_t block) const {
    const int64_t width = form_.layers.back().width;
    float* of_output = BlockMemory(kOfOutput, blocks_.size * width);
    ActiveSequenceKernels().weigh_rows(blocks_.count(block), width,
                                       of_scores_ + blocks_.first(block), form_.last_weight,
                                       of_output);
    return of_output;
  }

  // Returns the gradient of x_(k+1) for a block.
  const float* OfInput(size_t k, float* sums, int64_t block) {
    const int64_t count = blocks_.count(block), width = form_.layers[k].width;
    const float* of_output =
        k + 1 == form_.layers.size() ? OfLastOutput(block) : BlockOf(of_outputs_[k], k, block);
    float* of_input = BlockMemory(kOfInput, blocks_.size * width);
    activations_[k].Gradient(count, BlockOf(xs_[k], k, block), of_output, means_[k].data(),
                             of_input, sums + sums_of_[k].activation);
    ClearRows(count, blocks_.size, width, of_input);
    if (k > 0) {
      ActiveSequenceKernels().sum_rows(count, width, of_input, sums + sums_of_[k].bias);
    }
    return of_input;
  }

  // Computes the gradients of the values, and the gradient of the part of W_1 that multiplies
  // [v, c v]. For each list, also computes the gradient of the candidate, and the gradient of the
  // row W c + b that is added to x_1.
  void FirstLayer(float* sums, int64_t block, bool adds, const float* of_input) {
    const SequenceKernels& kernels = ActiveSequenceKernels();
    const int64_t dim = form_.dim, width = form_.layers[0].width;
    const BlockProducts& products = *products_[0];
    float* pairs = BlockMemory(kFactor, blocks_.size * 2 * dim);
    PairBlock(form_, lists_, inputs_, blocks_, block, pairs);
    const void* factor = products.Factor(0, width, of_input);
    products.Gradient(factor, products.Factor(1, 2 * dim, pairs), adds, sums + sums_of_[0].weight);
    float* of_pairs = BlockMemory(kOfPairs, blocks_.size * 2 * dim);
    products.Backward(factor, of_pairs);
    const int64_t first = blocks_.first(block), count = blocks_.count(block);
    ForPieces(lists_, first, count, [&](int64_t i, int64_t begin, int64_t end) {
      float* of_candidate = gradient_.candidates + i * dim;
      float* of_row = by_list_.data() + i * width;
      if (end - begin < lists_.length(i)) {
        of_candidate = Edge(block, begin == first ? 0 : 1);
        of_row = of_candidate + dim;
      }
      kernels.sum_rows(end - begin, width, of_input + (begin - first) * width, of_row);
      kernels.pair_rows_gradient(end - begin, dim, inputs_.candidates + i * dim,
                                 inputs_.values + begin * dim, of_pairs + (begin - first) * 2 * dim,
                                 gradient_.values + begin * dim, of_candidate);
    });
  }

  // A list of a block may continue in another block. Returns the block's sums for such a list: for
  // the block's first list if `which` is 0, and for the block's last list if `which` is 1. The sums
  // are `dim` floats for the candidate, followed by `width` floats for the row W c + b of the list.
  float* Edge(int64_t block, int64_t which) {
    return edges_.data() + (2 * block + which) * (form_.dim + form_.layers[0].width);
  }

  // For each list whose values are in several blocks, adds up the sums of these blocks, in the
  // order of the blocks.
  void AddEdges() {
    const SequenceKernels& kernels = ActiveSequenceKernels();
    const int64_t dim = form_.dim, width = form_.layers[0].width;
    for (int64_t block = 0; block < blocks_.blocks; ++block) {
      const int64_t first = blocks_.first(block);
      ForPieces(lists_, first, blocks_.count(block), [&](int64_t i, int64_t begin, int64_t end) {
        if (end - begin == lists_.length(i)) return;
        const float* edge = Edge(block, begin == first ? 0 : 1);
        kernels.add_row(1, dim, edge, gradient_.candidates + i * dim);
        kernels.add_row(1, width, edge + dim, by_list_.data() + i * width);
      });
    }
  }

  // Computes the means that the gradient of activation k needs. A mean is taken over the rows: the
  // sum over all tasks, divided by the number of rows.
  void Means(size_t k) {
    std::vector<float>& means = means_[k];
    for (size_t c = 0; c < means.size(); ++c) {
      double sum = 0.0;
      for (int64_t task = 0; task < tasks_; ++task) {
        sum += static_cast<double>(SumsOf(task)[static_cast<size_t>(sums_of_[k].activation) + c]);
      }
      means[c] = static_cast<float>(sum / static_cast<double>(blocks_.rows));
    }
  }

  // Adds up the columns [column, column + width) of the sums of all tasks, and writes the result to
  // `target`.
  void SumTasks(int64_t column, int64_t width, float* target) {
    constexpr int64_t kColumns = 1024;
    pool_->ParallelFor((width + kColumns - 1) / kColumns, [&](int64_t piece) {
      const int64_t first = piece * kColumns, count = std::min(kColumns, width - first);
      std::fill_n(target + first, count, 0.0f);
      for (int64_t task = 0; task < tasks_; ++task) {
        ActiveSequenceKernels().add_row(1, count, SumsOf(task) + column + first, target + first);
      }
    });
  }

  void OfParameters() {
    for (size_t k = 0; k < form_.layers.size(); ++k) {
      const int64_t width = form_.layers[k].width;
      SumTasks(sums_of_[k].activation + 2 * width, width, gradient_.layers[k].alpha);
      if (k == 0) continue;
      SumTasks(sums_of_[k].weight, width * form_.layers[k - 1].width, gradient_.layers[k].weight);
      SumTasks(sums_of_[k].bias, width, gradient_.layers[k].bias);
    }
    SumTasks(last_sums_, form_.layers.back().width, gradient_.last_weight);
    SumTasks(last_sums_ + form_.layers.back().width, 1, gradient_.last_bias);
    OfFirstWeight();
  }

  // Joins the gradients of the two parts of the first layer's weight.
  void OfFirstWeight() {
    const int64_t dim = form_.dim, width = form_.layers[0].width;
    std::vector<float> of_pairs(split_.pairs.size());
    SumTasks(sums_of_[0].weight, width * 2 * dim, of_pairs.data());
    const std::vector<float> of_candidates = OfCandidates();
    for (int64_t i = 0; i < width; ++i) {
      float* to = gradient_.layers[0].weight + i * 4 * dim;
      for (int64_t c = 0; c < dim; ++c) {
        const float of_candidate = of_candidates[static_cast<size_t>(i * dim + c)];
        const float* of_pair = of_pairs.data() + i * 2 * dim + c;
        to[c] = of_candidate;
        to[dim + c] = of_pair[0];
        to[2 * dim + c] = of_candidate - of_pair[0];
        to[3 * dim + c] = of_pair[dim];
      }
    }
  }

  // Writes the gradient of the first layer's bias, and adds a part of the candidates' gradient to
  // `gradient_.candidates`. Returns the gradient of the weight [width, dim] that multiplies the
  // candidates.
  std::vector<float> OfCandidates() {
    const int64_t dim = form_.dim, width = form_.layers[0].width;
    float* of_bias = gradient_.layers[0].bias;
    std::fill_n(of_bias, width, 0.0f);
    std::vector<float> of_weight(split_.candidates.size(), 0.0f);
    const RowBlocks lists(lists_.count());
    const BlockProducts products(Pass::kGradient, form_.precision, lists.size,
                                 {split_.candidates.data(), width, dim});
    for (int64_t block = 0; block < lists.blocks; ++block) {
      const int64_t first = lists.first(block), count = lists.count(block);
      float* candidates = BlockMemory(kFactor, lists.size * dim);
      float* of_rows = BlockMemory(kOfOutput, lists.size * width);
      float* of_candidates = BlockMemory(kOfPairs, lists.size * dim);
      CopyBlock(lists, block, dim, inputs_.candidates, candidates);
      CopyBlock(lists, block, width, by_list_.data(), of_rows);
      ActiveSequenceKernels().sum_rows(count, width, of_rows, of_bias);
      const void* factor = products.Factor(0, width, of_rows);
      products.Gradient(factor, products.Factor(1, dim, candidates), block > 0, of_weight.data());
      products.Backward(factor, of_candidates);
      ActiveSequenceKernels().add_row(1, count * dim, of_candidates,
                                      gradient_.candidates + first * dim);
    }
    return of_weight;
  }

  const TargetForm& form_;
  const Lists& lists_;
  const TargetInputs& inputs_;
  const TargetKept& kept_;
  const TargetGradient& gradient_;
  ThreadPool* const pool_;
  const RowBlocks blocks_;
  const SplitWeight split_;
  float* const of_scores_;          // [N]
  std::vector<float*> xs_;          // x_1, x_2, ...
  std::vector<float*> of_outputs_;  // gradients of h_1, h_2, ..., except of the last layer's output
  std::vector<std::unique_ptr<BlockProducts>> products_;
  std::vector<TargetActivation> activations_;
  std::vector<std::vector<float>> means_;
  int64_t tasks_ = 0;
  int64_t width_ = 0;    // number of floats of a task's sums
  int64_t cleared_ = 0;  // the first `cleared_` floats are cleared; a task's first block writes the
                         // other floats
  int64_t last_sums_ = 0;  // column of the sums for the last weight and bias
  std::vector<LayerSums> sums_of_;
  AlignedMemory large_sums_;
  float* sums_ = nullptr;       // [tasks, width_]
  std::vector<float> by_list_;  // [B, width of x_1]: gradients of the rows that lists add to x_1
  std::vector<float> edges_;    // [blocks, 2, dim + width of x_1]
};

}  // namespace

int64_t TargetMemoryWidth(const std::vector<int64_t>& widths) {
  int64_t width = 1;  // of the scores
  for (size_t k = 0; k + 1 < widths.size(); ++k) width += widths[k];
  return width;
}

void TargetAttendGradient(const TargetForm& form, const Lists& lists, const TargetInputs& inputs,
                          const TargetKept& kept, const float* of_sums,
                          const TargetGradient& gradient, float* memory, ThreadPool* pool) {
  TargetBackward(form, lists, inputs, kept, gradient, memory, pool).Run(of_sums);
}

}  // namespace msrec
