// SPDX-License-Identifier: Apache-2.0
#include "dense/batch_norm.h"

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

namespace msrec {
namespace {

// Order of the vectors in `packed`: first the new moving statistics, then the statistics that
// normalize the batch.
struct Vectors {
  float* new_mean;
  float* new_variance;
  float* mean;
  float* inverse;  // 1 / sqrt(variance + epsilon)
  float* scale;    // gamma inverse
};

Vectors VectorsOf(const BatchRun& run, const BatchNormMemory& memory, int64_t width) {
  auto* at = reinterpret_cast<float*>(run.packed + memory.packed);
  return {at, at + width, at + 2 * width, at + 3 * width, at + 4 * width};
}

const float* Extra(const BatchRun& run, int extra) {
  return static_cast<const float*>(run.extras[extra]);
}

size_t FloatBytes(int64_t floats) { return sizeof(float) * static_cast<size_t>(floats); }

void AddMemory(int64_t width, DenseProgram* program, BatchNormMemory* memory) {
  memory->packed = program->AddPacked(FloatBytes(5 * width));
  memory->sums = program->AddPartialSums(4 * width);
}

// Computes the inverse deviation and the scale of a column from the column's variance.
void SetScale(const BatchNorm& norm, const BatchRun& run, double variance, int64_t column,
              const Vectors& vectors) {
  const double inverse = 1.0 / std::sqrt(variance + static_cast<double>(norm.epsilon));
  vectors.inverse[column] = static_cast<float>(inverse);
  vectors.scale[column] = static_cast<float>(run.parameters[norm.gamma][column] * inverse);
}

// Statistics of a set of rows: the number of rows, and for each column the mean and the sum of
// squared deviations.
struct Moments {
  explicit Moments(int64_t width)
      : means(static_cast<size_t>(width), 0.0), squares(static_cast<size_t>(width), 0.0) {}

  // Merges the statistics of `rows` further rows into these statistics (Chan, Golub & LeVeque,
  // 1979).
  template <typename T>
  void Join(double rows, const T* other_means, const T* other_squares) {
    if (rows == 0) return;
    const double share = rows / (count + rows);
    for (size_t j = 0; j < means.size(); ++j) {
      const double away = other_means[j] - means[j];
      means[j] += away * share;
      squares[j] += other_squares[j] + away * away * count * share;
    }
    count += rows;
  }

  double count = 0.0;
  std::vector<double> means, squares;
};

// Joins the moments of all workers in rank order. An idle worker's moments have a row count of 0.
Moments OfAllWorkers(const Moments& mine, BatchShare* share) {
  const size_t width = mine.means.size();
  std::vector<double> sent{share->is_idle() ? 0.0 : mine.count};
  sent.insert(sent.end(), mine.means.begin(), mine.means.end());
  sent.insert(sent.end(), mine.squares.begin(), mine.squares.end());
  const std::vector<double> all = share->Gather("statistics of a batch normalization", sent);
  Moments joined(static_cast<int64_t>(width));
  for (size_t r = 0; r < share->weights().size(); ++r) {
    const double* other = all.data() + r * sent.size();
    joined.Join(other[0], other + 1, other + 1 + width);
  }
  return joined;
}

}  // namespace

int64_t AddBatchNorm(const BatchNorm& norm, bool training, DenseProgram* program) {
  auto memory = std::make_shared<BatchNormMemory>();
  if (training) {
    program->AddLayer(std::make_unique<BatchStatistics>(norm, memory));
    program->EndStage();
  }
  program->AddLayer(std::make_unique<Normalization>(norm, training ? memory : nullptr));
  return memory->packed / static_cast<int64_t>(sizeof(float));
}

// ---------------------------------------------------------------- statistics of the batch

BatchStatistics::BatchStatistics(const BatchNorm& norm, std::shared_ptr<BatchNormMemory> memory)
    : norm_(norm), memory_(std::move(memory)) {
  inputs_ = {{norm.input, false}};
  extras_ = {{norm.mean, width()}, {norm.variance, width()}};
}

void BatchStatistics::Attach(DenseProgram* program) { AddMemory(width(), program, memory_.get()); }

// Computes the mean and the sum of squared deviations of the slice's real rows.
void BatchStatistics::Forward(const SliceRun& slice) const {
  const Elementwise& loops = slice.loops();
  const Block x = slice.value(norm_.input);
  float* mean = slice.partial_sums(memory_->sums);
  loops.column_sums(slice.real_rows(), width(), x, mean);
  loops.divide(width(), static_cast<float>(slice.real_rows()), mean);
  loops.squared_deviations(slice.real_rows(), width(), x, mean, mean + width());
}

// Joins the moments of the slices in slice order, and then the moments of the workers in rank
// order.
void BatchStatistics::BetweenForward(const BatchRun& run) const {
  const int64_t w = width();
  const Vectors vectors = VectorsOf(run, *memory_, w);
  std::memcpy(vectors.new_mean, Extra(run, norm_.mean), FloatBytes(w));
  std::memcpy(vectors.new_variance, Extra(run, norm_.variance), FloatBytes(w));
  Moments moments(w);
  for (int64_t s = 0; s < run.slices; ++s) {
    const SliceRun slice(run, s, nullptr);
    const float* mean = slice.partial_sums(memory_->sums);
    moments.Join(static_cast<double>(slice.real_rows()), mean, mean + w);
  }
  if (run.share != nullptr) moments = OfAllWorkers(moments, run.share);
  if (moments.count == 0) {  // no worker has rows, and any statistics will do for the rows of an
                             // idle worker
    std::memcpy(vectors.mean, vectors.new_mean, FloatBytes(w));
    for (int64_t j = 0; j < w; ++j) SetScale(norm_, run, vectors.new_variance[j], j, vectors);
    return;
  }
  const double momentum = norm_.momentum;
  for (int64_t j = 0; j < w; ++j) {
    vectors.mean[j] = static_cast<float>(moments.means[j]);
    SetScale(norm_, run, moments.squares[j] / moments.count, j, vectors);
    const auto moved = [&](float old, double now) {
      return static_cast<float>(old * (1.0 - momentum) + now * momentum);
    };
    vectors.new_mean[j] = moved(vectors.new_mean[j], moments.means[j]);
    if (moments.count == 1) continue;
    vectors.new_variance[j] =
        moved(vectors.new_variance[j], moments.squares[j] / (moments.count - 1.0));
  }
}

// Computes two means over all rows: the mean of g, and the mean of g (x - mean) inverse^2.
void BatchStatistics::BetweenBackward(const BatchRun& run) const {
  const int64_t w = width();
  if (run.share != nullptr) {
    MeansOfAllWorkers(run);
    return;
  }
  if (run.batch == 0) return;
  const Vectors vectors = VectorsOf(run, *memory_, w);
  float* found = SliceRun(run, 0, nullptr).partial_sums(memory_->sums) + 2 * w;
  SumPartials(run, memory_->sums, 2 * w, false, found);
  const auto rows = static_cast<float>(run.batch);
  for (int64_t j = 0; j < w; ++j) {
    found[j] /= rows;
    found[w + j] *= vectors.inverse[j] * vectors.inverse[j] / rows;
  }
}

// Computes the means over the rows of all workers. The gradients of each worker are the gradients
// of that worker's own loss. To compute the means, this function multiplies the sums of each worker
// by the worker's weight. The function also divides the result by this worker's weight, because all
// gradients of this worker are multiplied by the weight later.
void BatchStatistics::MeansOfAllWorkers(const BatchRun& run) const {
  const int64_t w = width();
  const std::vector<float>& weights = run.share->weights();
  std::vector<double> mine(static_cast<size_t>(2 * w + 1), 0.0);
  mine[2 * w] = run.share->is_idle() ? 0.0 : static_cast<double>(run.batch);
  for (int64_t s = 0; s < run.slices; ++s) {
    const float* sums = SliceRun(run, s, nullptr).partial_sums(memory_->sums);
    for (int64_t j = 0; j < 2 * w; ++j) mine[j] += sums[j];
  }
  const std::vector<double> all = run.share->Gather("gradients of a batch normalization", mine);
  if (run.batch == 0) return;
  const Vectors vectors = VectorsOf(run, *memory_, w);
  float* found = SliceRun(run, 0, nullptr).partial_sums(memory_->sums) + 2 * w;
  std::memset(found, 0, FloatBytes(2 * w));
  if (run.share->is_idle()) return;  // the gradients of an idle worker have weight 0
  std::vector<double> sums(static_cast<size_t>(2 * w), 0.0);
  double rows = 0.0;
  for (size_t r = 0; r < weights.size(); ++r) {
    if (weights[r] == 0) continue;
    const double* other = all.data() + r * mine.size();
    for (int64_t j = 0; j < 2 * w; ++j) sums[j] += weights[r] * other[j];
    rows += other[2 * w];
  }
  const double divisor = rows * weights[static_cast<size_t>(run.share->rank())];
  for (int64_t j = 0; j < w; ++j) {
    const double inverse = vectors.inverse[j];
    found[j] = static_cast<float>(sums[j] / divisor);
    found[w + j] = static_cast<float>(sums[w + j] * inverse * inverse / divisor);
  }
}

void BatchStatistics::Backward(const SliceRun& slice) const {
  const int64_t w = width();
  const BatchRun& run = slice.run();
  const Vectors vectors = VectorsOf(run, *memory_, w);
  const float* found = SliceRun(run, 0, nullptr).partial_sums(memory_->sums) + 2 * w;
  const Block gradient = slice.gradient(norm_.input);
  slice.loops().normalize_gradient(slice.real_rows(), w, slice.value(norm_.input), vectors.mean,
                                   vectors.scale, found, found + w, gradient);
  // Clears the gradients of the padding rows, because these rows do not belong to the batch.
  const int64_t real = slice.real_rows();
  if (real < slice.rows()) {
    slice.loops().clear(slice.rows() - real, w, {gradient.row(real), gradient.ld});
  }
}

// ---------------------------------------------------------------- normalization

Normalization::Normalization(const BatchNorm& norm, std::shared_ptr<BatchNormMemory> memory)
    : norm_(norm),
      is_moving_(memory == nullptr),
      memory_(memory == nullptr ? std::make_shared<BatchNormMemory>() : std::move(memory)) {
  if (norm.input.width != norm.output.width) {
    throw std::invalid_argument("a normalization of " + std::to_string(norm.input.width) +
                                " columns writes " + std::to_string(norm.output.width));
  }
  if (norm.activation == Activation::kGelu) {
    throw std::invalid_argument("gelu must be a layer of its own behind a normalization");
  }
  inputs_ = {{norm.input, false}};
  outputs_ = {norm.output};
  parameters_ = {{norm.gamma, 0, width()}, {norm.beta, 0, width()}};
  if (is_moving_) extras_ = {{norm.mean, width()}, {norm.variance, width()}};
  if (!norm.masks.any()) return;
  RequireDropsInPlace(norm.activation);
  for (const ExtraInput& extra : norm.masks.Extras(width())) extras_.push_back(extra);
}

void Normalization::Attach(DenseProgram* program) {
  if (is_moving_) AddMemory(width(), program, memory_.get());
}

void Normalization::Pack(const BatchRun& run, int64_t) const {
  const Vectors vectors = VectorsOf(run, *memory_, width());
  std::memcpy(vectors.mean, Extra(run, norm_.mean), FloatBytes(width()));
  const float* variance = Extra(run, norm_.variance);
  for (int64_t j = 0; j < width(); ++j) SetScale(norm_, run, variance[j], j, vectors);
}

void Normalization::Forward(const SliceRun& slice) const {
  const Vectors vectors = VectorsOf(slice.run(), *memory_, width());
  const float* beta = slice.run().parameters[norm_.beta];
  slice.loops().normalize(norm_.activation, slice.rows(), width(), slice.value(norm_.input),
                          {vectors.mean, vectors.scale, beta}, norm_.masks.Rows(slice),
                          slice.value(norm_.output));
}

void Normalization::Backward(const SliceRun& slice) const {
  const Elementwise& loops = slice.loops();
  const Vectors vectors = VectorsOf(slice.run(), *memory_, width());
  const Block g = slice.gradient(norm_.output);
  const Block dx = slice.gradient(norm_.input);
  float* sums = slice.partial_sums(memory_->sums);
  if (!is_moving_ && inputs_[0].adds) {
    throw std::logic_error("others read what is normalized by its batch");
  }
  // If the layer normalizes by the statistics of the batch, `dx` receives the gradient of the
  // activation's input. `BatchStatistics` later computes the gradient of the layer's input from
  // `dx`.
  loops.normalized_gradient(norm_.activation, slice.real_rows(), width(), slice.value(norm_.input),
                            vectors.mean, norm_.masks.Rows(slice), slice.value(norm_.output), g,
                            sums, sums + width(), is_moving_ ? g : dx);
  if (is_moving_) {
    loops.add_product(slice.real_rows(), width(), g, {vectors.scale, 0}, dx);
  }
}

void Normalization::Gradient(const BatchRun& run, int64_t, bool adds) const {
  const int64_t w = width();
  SumPartials(run, memory_->sums, w, adds, run.parameter_gradients[norm_.beta]);
  std::vector<float> products(static_cast<size_t>(w));
  SumPartials(run, memory_->sums + w, w, false, products.data());
  float* gamma = run.parameter_gradients[norm_.gamma];
  if (!adds) std::memset(gamma, 0, FloatBytes(w));
  if (run.batch == 0) return;
  const Vectors vectors = VectorsOf(run, *memory_, w);
  for (int64_t j = 0; j < w; ++j) gamma[j] += products[j] * vectors.inverse[j];
}

}  // namespace msrec
