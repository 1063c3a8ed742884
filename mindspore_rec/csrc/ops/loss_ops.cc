// SPDX-License-Identifier: Apache-2.0
//
// Two operators. The first operator computes the binary cross-entropy of logits, and the derivative
// of the loss. The second operator is the backward pass, which multiplies the derivative by the
// gradient of the loss, and computes the gradient of the labels. An int64 constant with one element
// selects the mean (1) or the sum (0) of the losses.
#include "dense/logistic_loss.h"
#include "ops/operator.h"
#include "util/float_mode.h"

namespace msrec {
namespace {

constexpr const char* kLoss = "BCEWithLogitsLoss: ";

const float* LossInput(const Args& args, int i, const char* name) {
  if (!args.IsType(i, "float32")) {
    throw std::invalid_argument(std::string(kLoss) + name + " must be float32, got " +
                                args.dtypes[i]);
  }
  return args.Data<float>(i, name, args.Size(i));
}

void CheckSameShape(const Args& args, int i, int j, const char* name, const char* other) {
  if (args.ndims[i] == args.ndims[j] && args.Leads(i, j)) return;
  throw std::invalid_argument(std::string(kLoss) + name + " must have the shape of " + other +
                              ", " + args.ShapeText(j) + ", got " + args.ShapeText(i));
}

bool IsMean(const Args& args) { return args.Number<int64_t>(0, "the kind of result") != 0; }

// Returns the weight of each sample's loss: 1 / n for the mean of the losses, 1 for the sum.
float ScaleOf(bool is_mean, int64_t n) { return is_mean ? 1.0f / static_cast<float>(n) : 1.0f; }

}  // namespace
}  // namespace msrec

using msrec::LogisticBatch;
using msrec::Shape;
using msrec::ThreadPool;

// (mean, logits, labels) -> (loss [1], gradient of the logits)
MSREC_EXPORT std::vector<Shape> MsrLogisticLossInferShape(int* ndims, int64_t** shapes, void*) {
  return {{1}, msrec::ShapeOf(ndims, shapes, 1)};
}
MSREC_OP(MsrLogisticLoss) {
  args.RequireCount(5);
  LogisticBatch batch;
  batch.n = static_cast<int64_t>(args.Size(1));
  batch.logits = msrec::LossInput(args, 1, "input");
  batch.labels = msrec::LossInput(args, 2, "target");
  msrec::CheckSameShape(args, 2, 1, "target", "input");
  const msrec::DefaultFloatMode float_mode;
  const bool is_mean = msrec::IsMean(args);
  auto& loss = args.Number<float>(3, "the loss");
  float* gradient = args.Data<float>(4, "the output of gradients", args.Size(1));
  const double sum = msrec::LogisticLossSum(batch, msrec::ScaleOf(is_mean, batch.n), gradient,
                                            &ThreadPool::Global());
  // For an empty batch, the mean is NaN, as in MindSpore.
  loss = static_cast<float>(is_mean ? sum / static_cast<double>(batch.n) : sum);
}

// (mean, logits, gradient of the logits, gradient of the loss [1])
//   -> (gradient of the logits, gradient of the labels)
MSREC_EXPORT std::vector<Shape> MsrLogisticLossGradientInferShape(int* ndims, int64_t** shapes,
                                                                  void*) {
  const Shape shape = msrec::ShapeOf(ndims, shapes, 1);
  return {shape, shape};
}
MSREC_OP(MsrLogisticLossGradient) {
  args.RequireCount(6);
  LogisticBatch batch;
  batch.n = static_cast<int64_t>(args.Size(1));
  batch.logits = msrec::LossInput(args, 1, "input");
  const float* gradient = msrec::LossInput(args, 2, "the gradient");
  msrec::CheckSameShape(args, 2, 1, "the gradient", "input");
  const float given = args.Number<float>(3, "the gradient of the loss");
  float* of_logits = args.Data<float>(4, "the gradient of the logits", args.Size(1));
  float* of_labels = args.Data<float>(5, "the gradient of the labels", args.Size(1));
  const msrec::DefaultFloatMode float_mode;
  msrec::LogisticLossGradients(batch, msrec::ScaleOf(msrec::IsMean(args), batch.n), gradient, given,
                               of_logits, of_labels, &ThreadPool::Global());
}
