// SPDX-License-Identifier: Apache-2.0
//
// Batch normalization with an activation: y = a(gamma (x - mean) / sqrt(variance + epsilon) +
// beta).
//
// In training, mean and variance are computed over all rows of the batch. The output can be
// computed only when the inputs of all rows are complete, so a normalization consists of two
// layers: BatchStatistics ends a stage, and Normalization begins the next stage. If several workers
// share the batch, mean and variance are computed over the rows of all workers, and are identical,
// bit for bit, on all workers. In evaluation, the moving statistics are used as mean and variance.
#pragma once

#include <memory>

#include "dense/layer.h"
#include "dense/row_masks.h"

namespace msrec {

struct BatchNorm {
  View input;
  View output;
  int gamma = -1;  // parameters [width]
  int beta = -1;
  int mean = -1;  // further inputs [width]: the moving mean and variance
  int variance = -1;
  Activation activation = Activation::kNone;  // not gelu
  RowMasks masks;                             // masks of a dropout that follows, as for `Linear`
  float epsilon = 1e-5f;
  float momentum = 0.1f;  // weight of the batch in the new moving statistics
};

// Memory that the two layers of a normalization share.
struct BatchNormMemory {
  int64_t packed = 0;  // offset of the vectors below, each of `width` floats
  int64_t sums = 0;    // column of two sums per slice, followed by two results in slice 0
};

// Adds the layers to a program. In training, a forward pass writes the new moving mean to `packed`,
// followed by the new moving variance. Returns the offset of the new moving mean in `packed`, in
// floats. As in MindSpore's BatchNorm1d, the new moving variance uses the sample variance (divided
// by rows - 1). With fewer than two rows, the moving variance does not change.
int64_t AddBatchNorm(const BatchNorm& norm, bool training, DenseProgram* program);

// Computes the mean and variance of a batch, as the last layer of a stage. Only this layer and
// `Normalization` may read the input, because this layer changes the input's gradient in place.
class BatchStatistics : public Layer {
 public:
  BatchStatistics(const BatchNorm& norm, std::shared_ptr<BatchNormMemory> memory);
  void Attach(DenseProgram* program) override;
  void Forward(const SliceRun& slice) const override;
  void Backward(const SliceRun& slice) const override;
  void BetweenForward(const BatchRun& run) const override;
  void BetweenBackward(const BatchRun& run) const override;

 private:
  int64_t width() const { return norm_.input.width; }
  void MeansOfAllWorkers(const BatchRun& run) const;

  const BatchNorm norm_;
  const std::shared_ptr<BatchNormMemory> memory_;
};

// Computes the output y of a batch normalization. In training, Normalization is the first layer of
// the stage that follows BatchStatistics. In evaluation, BatchNorm consists of Normalization only.
class Normalization : public Layer {
 public:
  // If `memory` is null, uses the moving statistics.
  Normalization(const BatchNorm& norm, std::shared_ptr<BatchNormMemory> memory);
  bool always_adds() const override { return is_moving_; }
  void Attach(DenseProgram* program) override;
  int64_t PackTasks(const BatchRun&) const override { return is_moving_ ? 1 : 0; }
  void Pack(const BatchRun& run, int64_t task) const override;
  void Forward(const SliceRun& slice) const override;
  void Backward(const SliceRun& slice) const override;
  int64_t GradientTasks(const BatchRun&) const override { return 1; }
  void Gradient(const BatchRun& run, int64_t task, bool adds) const override;

 private:
  int64_t width() const { return norm_.input.width; }

  const BatchNorm norm_;
  const bool is_moving_;
  const std::shared_ptr<BatchNormMemory> memory_;
};

}  // namespace msrec
