// SPDX-License-Identifier: Apache-2.0
//
// The operators that compute a target attention and the gradient of a target attention. The number
// of hidden layers of the perceptron is part of the shape of the first argument, because shape
// inference receives only shapes.
#include <algorithm>
#include <numeric>
#include <vector>

#include "dense/onednn.h"
#include "ops/list_args.h"
#include "ops/operator.h"
#include "sequence/target_attention.h"
#include "sequence/target_blocks.h"
#include "sequence/target_gradient.h"
#include "util/float_mode.h"

namespace msrec {
namespace {

// Both operators begin with the same inputs: form, numbers, candidates, values and offsets. The
// next inputs are, for each hidden layer, the weight, bias, alpha, moving mean and moving variance.
// The last of these inputs are the weight and the bias of the output layer. `form` begins with four
// flags, each 0 or 1: the moments come from the batch; the activation is Dice; the weights are a
// softmax; the factors are bfloat16. One unused number per hidden layer follows. `numbers` is
// [epsilon, weight of the old moments, weight of the new moments].
constexpr int64_t kFormNumbers = 4;
constexpr int64_t kFirstLayer = 5;
constexpr int64_t kOfLayer = 5;

int64_t LayersOf(const int* ndims, int64_t* const* shapes) {
  return std::max<int64_t>(1, Dimension(ndims, shapes, 0) - kFormNumbers);
}
int64_t InputsFor(int64_t layers) { return kFirstLayer + kOfLayer * layers + 2; }
int64_t WidthOf(const int* ndims, int64_t* const* shapes, int64_t layer) {
  return Dimension(ndims, shapes, kFirstLayer + kOfLayer * layer);
}
int64_t MomentsOf(const int* ndims, int64_t* const* shapes, int64_t layer) {
  return Dimension(ndims, shapes, kFirstLayer + kOfLayer * layer + 3);
}

int64_t RowsFor(int64_t values) { return values < 0 ? values : TargetRows(values); }

Precision PrecisionFor(bool rounds) {
  if (!rounds) return Precision::kFloat32;
  return OneDnn::loaded() && OneDnn::has_bfloat16() ? Precision::kBFloat16
                                                    : Precision::kRoundedFloat32;
}

struct TargetArgs {
  TargetArgs(const Args& args, int64_t layers)
      : values(Floats(args, 3, "values", -1)), lists(ListsOf(args, 4, 3)) {
    const int64_t* settings =
        args.Data<int64_t>(0, "the form", static_cast<size_t>(kFormNumbers + layers));
    form.of_batch = settings[0] != 0;
    form.dice = settings[1] != 0;
    form.softmax = settings[2] != 0;
    form.precision = PrecisionFor(settings[3] != 0);
    numbers = args.Data<float>(1, "the numbers", 3);
    form.epsilon = numbers[0];
    form.dim = RowsOfLists(args, 2, 3, lists, "candidate");
    inputs = {static_cast<const float*>(args.params[2]), values};
    int64_t before = 4 * form.dim;
    for (int64_t k = 0; k < layers; ++k) {
      const int at = static_cast<int>(kFirstLayer + kOfLayer * k);
      TargetLayer layer;
      layer.weight = Floats(args, at, "a weight", before);
      layer.width = args.shapes[at][0];
      const size_t width = static_cast<size_t>(layer.width);
      layer.bias = args.Data<float>(at + 1, "a bias", width);
      layer.alpha = args.Data<float>(at + 2, "alpha", width);
      moving.push_back(args.Data<float>(at + 3, "a moving mean", form.dice ? width : 1));
      moving.push_back(args.Data<float>(at + 4, "a moving variance", form.dice ? width : 1));
      moments += 2 * (form.dice ? layer.width : 1);
      form.layers.push_back(layer);
      before = layer.width;
    }
    const int last = static_cast<int>(kFirstLayer + kOfLayer * layers);
    form.last_weight = args.Data<float>(last, "the last weight", static_cast<size_t>(before));
    form.last_bias = args.Number<float>(last + 1, "the last bias");
  }

  // Sets the pointers `mean` and `variance` of each layer to consecutive parts of `memory`
  // [moments].
  void PlaceMoments(float* memory) {
    for (TargetLayer& layer : form.layers) {
      const int64_t width = form.dice ? layer.width : 1;
      layer.mean = memory;
      layer.variance = memory + width;
      memory += 2 * width;
    }
  }

  const float* values;
  Lists lists;
  TargetForm form;
  TargetInputs inputs;
  const float* numbers = nullptr;
  std::vector<const float*> moving;  // mean and variance of each layer
  int64_t moments = 0;               // floats
};

TargetKept KeptOf(const Args& args, const TargetArgs& given, int first) {
  const int64_t values = given.lists.values();
  const int64_t size = TargetRows(values) * given.form.widths();
  return {args.Data<float>(first, "the inputs of activations", static_cast<size_t>(size)),
          args.Data<float>(first + 1, "the weights", static_cast<size_t>(values))};
}

}  // namespace
}  // namespace msrec

using msrec::Shape;
using msrec::ThreadPool;

// Outputs: sums [B, dim], inputs of the activations, weights of the values [N, 1], the moments with
// which Dice normalized, and for each hidden layer the moving mean and the moving variance after
// the step.
MSREC_EXPORT std::vector<Shape> MsrTargetAttentionInferShape(int* ndims, int64_t** shapes, void*) {
  const int64_t layers = msrec::LayersOf(ndims, shapes);
  const int64_t values = msrec::Dimension(ndims, shapes, 3);
  int64_t widths = 0, moments = 0;
  for (int64_t k = 0; k < layers; ++k) {
    widths += msrec::WidthOf(ndims, shapes, k);
    moments += 2 * msrec::MomentsOf(ndims, shapes, k);
  }
  std::vector<Shape> outputs = {
      msrec::ShapeOf(ndims, shapes, 2), {msrec::RowsFor(values), widths}, {values, 1}, {moments}};
  for (int64_t k = 0; k < layers; ++k) {
    for (int i = 0; i < 2; ++i) outputs.push_back({msrec::MomentsOf(ndims, shapes, k)});
  }
  return outputs;
}
MSREC_OP(MsrTargetAttention) {
  args.RequireAtLeast(1);
  const int64_t layers = msrec::LayersOf(args.ndims, args.shapes);
  const int first = static_cast<int>(msrec::InputsFor(layers));
  args.RequireCount(first + 4 + 2 * layers);
  msrec::TargetArgs given(args, layers);
  float* sums = args.Data<float>(first, "the sums", args.Size(2));
  const msrec::TargetKept kept = msrec::KeptOf(args, given, first + 1);
  given.PlaceMoments(
      args.Data<float>(first + 3, "the moments", static_cast<size_t>(given.moments)));
  std::vector<float*> moved;
  for (size_t i = 0; i < given.moving.size(); ++i) {
    const auto& layer = given.form.layers[i / 2];
    const size_t width = static_cast<size_t>(given.form.dice ? layer.width : 1);
    moved.push_back(args.Data<float>(first + 4 + static_cast<int>(i), "new moments", width));
    std::copy_n(given.moving[i], width, i % 2 == 0 ? layer.mean : layer.variance);
    std::copy_n(given.moving[i], width, moved.back());
  }
  const msrec::DefaultFloatMode float_mode;
  msrec::TargetAttend(given.form, given.lists, given.inputs, kept, sums, &ThreadPool::Global());
  if (!given.form.dice || !given.form.of_batch || given.lists.values() == 0) return;
  for (size_t i = 0; i < moved.size(); ++i) {
    const auto& layer = given.form.layers[i / 2];
    const float* used = i % 2 == 0 ? layer.mean : layer.variance;
    for (int64_t c = 0; c < layer.width; ++c) {
      moved[i][c] = given.numbers[1] * given.moving[i][c] + given.numbers[2] * used[c];
    }
  }
}

// The gradient operator has four more inputs: the inputs of the activations, the weights of the
// values, the moments that the forward operator used, and the gradient of the forward operator's
// output. Outputs: the gradients of candidates and values; for each hidden layer, the gradients of
// weight, bias and alpha; the gradients of the last weight and bias; and scratch memory.
MSREC_EXPORT std::vector<Shape> MsrTargetAttentionGradientInferShape(int* ndims, int64_t** shapes,
                                                                     void*) {
  const int64_t layers = msrec::LayersOf(ndims, shapes);
  std::vector<Shape> outputs = {msrec::ShapeOf(ndims, shapes, 2), msrec::ShapeOf(ndims, shapes, 3)};
  std::vector<int64_t> widths;
  for (int64_t k = 0; k < layers; ++k) {
    const int64_t at = msrec::kFirstLayer + msrec::kOfLayer * k;
    for (int64_t i = 0; i < 3; ++i) outputs.push_back(msrec::ShapeOf(ndims, shapes, at + i));
    widths.push_back(msrec::WidthOf(ndims, shapes, k));
  }
  for (int64_t i = 2; i > 0; --i) {
    outputs.push_back(msrec::ShapeOf(ndims, shapes, msrec::InputsFor(layers) - i));
  }
  outputs.push_back(
      {msrec::RowsFor(msrec::Dimension(ndims, shapes, 3)), msrec::TargetMemoryWidth(widths)});
  return outputs;
}
MSREC_OP(MsrTargetAttentionGradient) {
  args.RequireAtLeast(1);
  const int64_t layers = msrec::LayersOf(args.ndims, args.shapes);
  const int further = static_cast<int>(msrec::InputsFor(layers));
  const int first = further + 4;
  args.RequireCount(first + 2 + 3 * layers + 3);
  msrec::TargetArgs given(args, layers);
  const msrec::TargetKept kept = msrec::KeptOf(args, given, further);
  given.PlaceMoments(
      args.Data<float>(further + 2, "the moments", static_cast<size_t>(given.moments)));
  const float* of_sums = args.Data<float>(further + 3, "the gradient of the sums", args.Size(2));
  int at = first;
  const auto next = [&](const char* name, int like) {
    return args.Data<float>(at++, name, args.Size(like));
  };
  msrec::TargetGradient gradient;
  gradient.candidates = next("the gradient of candidate", 2);
  gradient.values = next("the gradient of values", 3);
  std::vector<int64_t> widths;
  for (int64_t k = 0; k < layers; ++k) {
    const int layer = static_cast<int>(msrec::kFirstLayer + msrec::kOfLayer * k);
    msrec::TargetLayerGradient of_layer;
    of_layer.weight = next("the gradient of a weight", layer);
    of_layer.bias = next("the gradient of a bias", layer + 1);
    of_layer.alpha = next("the gradient of alpha", layer + 2);
    gradient.layers.push_back(of_layer);
    widths.push_back(given.form.layers[static_cast<size_t>(k)].width);
  }
  gradient.last_weight = next("the gradient of the last weight", further - 2);
  gradient.last_bias = next("the gradient of the last bias", further - 1);
  const int64_t size = msrec::TargetRows(given.lists.values()) * msrec::TargetMemoryWidth(widths);
  float* memory = args.Data<float>(at, "the memory", static_cast<size_t>(size));
  const msrec::DefaultFloatMode float_mode;
  msrec::TargetAttendGradient(given.form, given.lists, given.inputs, kept, of_sums, gradient,
                              memory, &ThreadPool::Global());
}
