// SPDX-License-Identifier: Apache-2.0
//
// Operators over histories. A history is passed as two inputs: a matrix with the values of all
// lists, one list after another, and the int64 offsets of the lists. An int64 constant `form`
// contains the settings of an operator. If an operator does not use an input, the input has one
// element, which may have any value.
#include "ops/list_args.h"
#include "ops/operator.h"
#include "sequence/activations.h"
#include "sequence/attention.h"
#include "sequence/hstu.h"
#include "sequence/norm.h"
#include "sequence/places.h"
#include "util/float_mode.h"

namespace msrec {
namespace {

const int64_t* TimesOf(const Args& args, int i, const Lists& lists) {
  if (!args.IsType(i, "int64") || static_cast<int64_t>(args.Size(i)) != lists.values()) {
    throw std::invalid_argument("times must be an int64 Tensor [N] with an element for each of " +
                                std::to_string(lists.values()) + " values, got " +
                                args.ShapeText(i) + " of " + args.dtypes[i]);
  }
  return static_cast<const int64_t*>(args.params[i]);
}

// Arguments of an attention, in order: form [heads, kind, has distances, has times], scales [score
// scale, weight scale, epsilon], rows [N, parts width], offsets, times, bias by distance, bias by
// time.
struct AttentionArgs {
  AttentionArgs(const Args& args, int64_t parts)
      : numbers(args.Data<int64_t>(0, "the form", 4)),
        scales(args.Data<float>(1, "the scales", 3)),
        qkv(Floats(args, 2, "qkv", -1)),
        lists(ListsOf(args, 3, 2)) {
    form.heads = numbers[0];
    form.kind = static_cast<Attention>(numbers[1]);
    if (form.heads < 1 || args.shapes[2][1] % (parts * form.heads) != 0) {
      throw std::invalid_argument("projected rows must have " + std::to_string(parts) +
                                  " * heads * dim columns for " + std::to_string(form.heads) +
                                  " heads, got " + args.ShapeText(2));
    }
    form.dim = args.shapes[2][1] / (parts * form.heads);
    form.score_scale = scales[0];
    form.weight_scale = scales[1];
    if (numbers[2] != 0) {
      form.distances = static_cast<int64_t>(args.Size(5));
      form.by_distance = args.DataAtLeast<float>(5, "the bias by distance", 1);
    }
    if (numbers[3] != 0) {
      form.times = TimesOf(args, 4, lists);
      form.buckets = static_cast<int64_t>(args.Size(6));
      form.by_time = args.DataAtLeast<float>(6, "the bias by time", 1);
      if (form.buckets > kMostTimeBuckets) throw std::invalid_argument("too many time buckets");
    }
  }

  const int64_t* numbers;
  const float* scales;
  const float* qkv;
  Lists lists;
  AttentionForm form;
};

NormForm NormOf(const Args& args) {
  NormForm form;
  form.width = static_cast<int64_t>(args.Size(2));
  if (form.width < 1 || args.ndims[1] < 1 || args.shapes[1][args.ndims[1] - 1] != form.width) {
    throw std::invalid_argument("the last dimension of x must be " + std::to_string(form.width) +
                                ", got " + args.ShapeText(1));
  }
  form.rows = static_cast<int64_t>(args.Size(1)) / form.width;
  form.epsilon = args.Number<float>(0, "epsilon");
  form.scale = args.Data<float>(2, "the scale", args.Size(2));
  return form;
}

// form [1 if the moments are of the batch], numbers [epsilon, ...], x, alpha
DiceForm DiceOf(const Args& args) {
  DiceForm form;
  form.of_batch = args.Number<int64_t>(0, "the form") != 0;
  form.epsilon = *args.DataAtLeast<float>(1, "epsilon", 1);
  form.width = static_cast<int64_t>(args.Size(3));
  Floats(args, 2, "x", form.width);
  form.rows = args.shapes[2][0];
  form.alpha = args.Data<float>(3, "alpha", args.Size(3));
  return form;
}

// x, alpha
PReluForm PReluOf(const Args& args) {
  const int64_t width = static_cast<int64_t>(args.Size(1));
  Floats(args, 0, "x", width);
  return {args.shapes[0][0], width, args.Data<float>(1, "alpha", args.Size(1))};
}

// Reads the arguments of an operator that uses place vectors (sequence/places.h): the form, the
// table [places, dim] and the times. If the argument `form` is 0, there are no times, and the
// argument for times is ignored.
PlaceForm PlacesOf(const Args& args, int table, int times, const Lists& lists) {
  PlaceForm form;
  Floats(args, table, "the table", -1);
  form.places = args.shapes[table][0];
  form.dim = args.shapes[table][1];
  if (form.places < 1) throw std::invalid_argument("the table must have at least one row");
  if (args.Number<int64_t>(0, "the form") != 0) form.times = TimesOf(args, times, lists);
  return form;
}

}  // namespace
}  // namespace msrec

using msrec::Shape;
using msrec::ThreadPool;

// (form, scales, qkv, offsets, times, by distance, by time) -> [N, width]
MSREC_EXPORT Shape MsrHistoryAttentionInferShape(int* ndims, int64_t** shapes, void*) {
  const int64_t width = msrec::Dimension(ndims, shapes, 2, 1);
  return {msrec::Dimension(ndims, shapes, 2), width < 0 ? width : width / 3};
}
MSREC_OP(MsrHistoryAttention) {
  args.RequireCount(8);
  const msrec::AttentionArgs given(args, 3);
  const size_t size = static_cast<size_t>(given.lists.values() * given.form.width());
  float* output = args.Data<float>(7, "the output", size);
  const msrec::DefaultFloatMode float_mode;
  msrec::Attend(given.form, given.lists, given.qkv, output, &ThreadPool::Global());
}

// (form, scales, qkv, offsets, times, by distance, by time, gradient of the output)
//   -> gradients of qkv, by distance, by time
MSREC_EXPORT std::vector<Shape> MsrHistoryAttentionGradientInferShape(int* ndims, int64_t** shapes,
                                                                      void*) {
  return {msrec::ShapeOf(ndims, shapes, 2), msrec::ShapeOf(ndims, shapes, 5),
          msrec::ShapeOf(ndims, shapes, 6)};
}
MSREC_OP(MsrHistoryAttentionGradient) {
  args.RequireCount(11);
  const msrec::AttentionArgs given(args, 3);
  const size_t size = static_cast<size_t>(given.lists.values() * given.form.width());
  const float* of_output = args.Data<float>(7, "the gradient of the output", size);
  msrec::AttentionGradient gradient;
  gradient.qkv = args.Data<float>(8, "the gradient of qkv", args.Size(2));
  gradient.by_distance = args.Data<float>(9, "the gradient by distance", args.Size(5));
  gradient.by_time = args.Data<float>(10, "the gradient by time", args.Size(6));
  std::fill_n(gradient.by_distance, args.Size(5), 0.0f);
  std::fill_n(gradient.by_time, args.Size(6), 0.0f);
  const msrec::DefaultFloatMode float_mode;
  msrec::AttendGradient(given.form, given.lists, given.qkv, of_output, gradient,
                        &ThreadPool::Global());
}

// (epsilon, x, scale, shift) -> normalized x
MSREC_EXPORT Shape MsrNormRowsInferShape(int* ndims, int64_t** shapes, void*) {
  return msrec::ShapeOf(ndims, shapes, 1);
}
MSREC_OP(MsrNormRows) {
  args.RequireCount(5);
  msrec::NormForm form = msrec::NormOf(args);
  form.shift = args.Data<float>(3, "the shift", args.Size(2));
  const float* x = args.Data<float>(1, "x", args.Size(1));
  float* output = args.Data<float>(4, "the output", args.Size(1));
  const msrec::DefaultFloatMode float_mode;
  msrec::Normalize(form, x, output, &ThreadPool::Global());
}

// (epsilon, x, scale, gradient of the output) -> gradients of x, scale, shift
MSREC_EXPORT std::vector<Shape> MsrNormRowsGradientInferShape(int* ndims, int64_t** shapes, void*) {
  const Shape scale = msrec::ShapeOf(ndims, shapes, 2);
  return {msrec::ShapeOf(ndims, shapes, 1), scale, scale};
}
MSREC_OP(MsrNormRowsGradient) {
  args.RequireCount(7);
  const msrec::NormForm form = msrec::NormOf(args);
  const float* x = args.Data<float>(1, "x", args.Size(1));
  const float* of_output = args.Data<float>(3, "the gradient of the output", args.Size(1));
  msrec::NormGradient gradient;
  gradient.x = args.Data<float>(4, "the gradient of x", args.Size(1));
  gradient.scale = args.Data<float>(5, "the gradient of the scale", args.Size(2));
  gradient.shift = args.Data<float>(6, "the gradient of the shift", args.Size(2));
  const msrec::DefaultFloatMode float_mode;
  msrec::NormalizeGradient(form, x, of_output, gradient, &ThreadPool::Global());
}

// (form, values, offsets, times, table) -> values + rows of the table
MSREC_EXPORT Shape MsrAddPlacesInferShape(int* ndims, int64_t** shapes, void*) {
  return msrec::ShapeOf(ndims, shapes, 1);
}
MSREC_OP(MsrAddPlaces) {
  args.RequireCount(6);
  msrec::Floats(args, 1, "values", msrec::Dimension(args.ndims, args.shapes, 4, 1));
  const msrec::Lists lists = msrec::ListsOf(args, 2, 1);
  const msrec::PlaceForm form = msrec::PlacesOf(args, 4, 3, lists);
  const float* values = args.Data<float>(1, "values", args.Size(1));
  const float* table = args.Data<float>(4, "the table", args.Size(4));
  float* output = args.Data<float>(5, "the output", args.Size(1));
  const msrec::DefaultFloatMode float_mode;
  msrec::AddPlaces(form, lists, values, table, output, &ThreadPool::Global());
}

// (form, gradient of the output, offsets, times, table) -> gradient of the table
MSREC_EXPORT Shape MsrAddPlacesGradientInferShape(int* ndims, int64_t** shapes, void*) {
  return msrec::ShapeOf(ndims, shapes, 4);
}
MSREC_OP(MsrAddPlacesGradient) {
  args.RequireCount(6);
  const float* of_output = msrec::Floats(args, 1, "the gradient of the output",
                                         msrec::Dimension(args.ndims, args.shapes, 4, 1));
  const msrec::Lists lists = msrec::ListsOf(args, 2, 1);
  const msrec::PlaceForm form = msrec::PlacesOf(args, 4, 3, lists);
  float* of_table = args.Data<float>(5, "the gradient of the table", args.Size(4));
  const msrec::DefaultFloatMode float_mode;
  msrec::PlaceGradient(form, lists, of_output, of_table, &ThreadPool::Global());
}

// (form, scales, projected, offsets, times, by distance, by time, scale, shift)
//   -> output [N, width], attention [N, width]
MSREC_EXPORT std::vector<Shape> MsrHstuInferShape(int* ndims, int64_t** shapes, void*) {
  const int64_t width = msrec::Dimension(ndims, shapes, 2, 1);
  const Shape shape = {msrec::Dimension(ndims, shapes, 2), width < 0 ? width : width / 4};
  return {shape, shape};
}
MSREC_OP(MsrHstu) {
  args.RequireCount(11);
  const msrec::AttentionArgs given(args, 4);
  const size_t width = static_cast<size_t>(given.form.width());
  const size_t size = static_cast<size_t>(given.lists.values()) * width;
  const msrec::RowScales norm = {args.Data<float>(7, "the scale", width),
                                 args.Data<float>(8, "the shift", width), given.scales[2]};
  float* output = args.Data<float>(9, "the output", size);
  float* attended = args.Data<float>(10, "the attention", size);
  const msrec::DefaultFloatMode float_mode;
  msrec::GatedAttend(given.form, norm, given.lists, given.qkv, attended, output,
                     &ThreadPool::Global());
}

// (form, scales, projected, offsets, times, by distance, by time, scale, shift, attention,
//  gradient of the output) -> gradients of projected, by distance, by time, scale, shift
MSREC_EXPORT std::vector<Shape> MsrHstuGradientInferShape(int* ndims, int64_t** shapes, void*) {
  return {msrec::ShapeOf(ndims, shapes, 2), msrec::ShapeOf(ndims, shapes, 5),
          msrec::ShapeOf(ndims, shapes, 6), msrec::ShapeOf(ndims, shapes, 7),
          msrec::ShapeOf(ndims, shapes, 8)};
}
MSREC_OP(MsrHstuGradient) {
  args.RequireCount(16);
  const msrec::AttentionArgs given(args, 4);
  const size_t width = static_cast<size_t>(given.form.width());
  const size_t size = static_cast<size_t>(given.lists.values()) * width;
  const msrec::RowScales norm = {args.Data<float>(7, "the scale", width),
                                 args.Data<float>(8, "the shift", width), given.scales[2]};
  const float* attended = args.Data<float>(9, "the attention", size);
  const float* of_output = args.Data<float>(10, "the gradient of the output", size);
  msrec::GatedGradient gradient;
  gradient.projected = args.Data<float>(11, "the gradient of projected rows", args.Size(2));
  gradient.by_distance = args.Data<float>(12, "the gradient by distance", args.Size(5));
  gradient.by_time = args.Data<float>(13, "the gradient by time", args.Size(6));
  gradient.scale = args.Data<float>(14, "the gradient of the scale", width);
  gradient.shift = args.Data<float>(15, "the gradient of the shift", width);
  std::fill_n(gradient.by_distance, args.Size(5), 0.0f);
  std::fill_n(gradient.by_time, args.Size(6), 0.0f);
  const msrec::DefaultFloatMode float_mode;
  msrec::GatedAttendGradient(given.form, norm, given.lists, {given.qkv, attended}, of_output,
                             gradient, &ThreadPool::Global());
}

// (form [1 for the batch's moments], numbers [epsilon, weights of the old and of the new moments],
//  x, alpha, moving mean, moving variance)
//   -> output, mean and variance that were used, moving mean and variance after the step
MSREC_EXPORT std::vector<Shape> MsrDiceInferShape(int* ndims, int64_t** shapes, void*) {
  const Shape width = msrec::ShapeOf(ndims, shapes, 3);
  return {msrec::ShapeOf(ndims, shapes, 2), width, width, width, width};
}
MSREC_OP(MsrDice) {
  args.RequireCount(11);
  msrec::DiceForm form = msrec::DiceOf(args);
  const size_t width = args.Size(3);
  const float* x = args.Data<float>(2, "x", args.Size(2));
  const float* given_mean = args.Data<float>(4, "the mean", width);
  const float* given_variance = args.Data<float>(5, "the variance", width);
  float* output = args.Data<float>(6, "the output", args.Size(2));
  float* mean = args.Data<float>(7, "the mean", width);
  float* variance = args.Data<float>(8, "the variance", width);
  float* moved_mean = args.Data<float>(9, "the moving mean", width);
  float* moved_variance = args.Data<float>(10, "the moving variance", width);
  const float* numbers = args.Data<float>(1, "the numbers", 3);
  const msrec::DefaultFloatMode float_mode;
  for (float* each : {mean, moved_mean}) std::copy_n(given_mean, width, each);
  for (float* each : {variance, moved_variance}) std::copy_n(given_variance, width, each);
  if (form.of_batch && form.rows > 0) {
    msrec::Moments(form.rows, form.width, x, mean, variance, &ThreadPool::Global());
    for (size_t c = 0; c < width; ++c) {
      moved_mean[c] = numbers[1] * given_mean[c] + numbers[2] * mean[c];
      moved_variance[c] = numbers[1] * given_variance[c] + numbers[2] * variance[c];
    }
  }
  form.mean = mean;
  form.variance = variance;
  msrec::Dice(form, x, output, &ThreadPool::Global());
}

// (form, numbers, x, alpha, mean, variance, gradient of the output) -> gradients of x, alpha
MSREC_EXPORT std::vector<Shape> MsrDiceGradientInferShape(int* ndims, int64_t** shapes, void*) {
  return {msrec::ShapeOf(ndims, shapes, 2), msrec::ShapeOf(ndims, shapes, 3)};
}
MSREC_OP(MsrDiceGradient) {
  args.RequireCount(9);
  msrec::DiceForm form = msrec::DiceOf(args);
  const size_t width = args.Size(3);
  const float* x = args.Data<float>(2, "x", args.Size(2));
  form.mean = args.Data<float>(4, "the mean", width);
  form.variance = args.Data<float>(5, "the variance", width);
  const float* of_output = args.Data<float>(6, "the gradient of the output", args.Size(2));
  float* of_x = args.Data<float>(7, "the gradient of x", args.Size(2));
  float* of_alpha = args.Data<float>(8, "the gradient of alpha", width);
  const msrec::DefaultFloatMode float_mode;
  msrec::DiceGradientOf(form, x, of_output, of_x, of_alpha, &ThreadPool::Global());
}

// (x, alpha) -> output
MSREC_EXPORT Shape MsrPReluInferShape(int* ndims, int64_t** shapes, void*) {
  return msrec::ShapeOf(ndims, shapes, 0);
}
MSREC_OP(MsrPRelu) {
  args.RequireCount(3);
  const msrec::PReluForm form = msrec::PReluOf(args);
  const float* x = args.Data<float>(0, "x", args.Size(0));
  float* output = args.Data<float>(2, "the output", args.Size(0));
  const msrec::DefaultFloatMode float_mode;
  msrec::PRelu(form, x, output, &ThreadPool::Global());
}

// (x, alpha, gradient of the output) -> gradients of x, alpha
MSREC_EXPORT std::vector<Shape> MsrPReluGradientInferShape(int* ndims, int64_t** shapes, void*) {
  return {msrec::ShapeOf(ndims, shapes, 0), msrec::ShapeOf(ndims, shapes, 1)};
}
MSREC_OP(MsrPReluGradient) {
  args.RequireCount(5);
  const msrec::PReluForm form = msrec::PReluOf(args);
  const float* x = args.Data<float>(0, "x", args.Size(0));
  const float* of_output = args.Data<float>(2, "the gradient of the output", args.Size(0));
  float* of_x = args.Data<float>(3, "the gradient of x", args.Size(0));
  float* of_alpha = args.Data<float>(4, "the gradient of alpha", args.Size(1));
  const msrec::DefaultFloatMode float_mode;
  msrec::PReluGradientOf(form, x, of_output, of_x, of_alpha, &ThreadPool::Global());
}
