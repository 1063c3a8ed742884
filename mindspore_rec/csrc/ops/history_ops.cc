// SPDX-License-Identifier: Apache-2.0
//
// Operators over histories: a matrix of the values of all lists, one after the other, and int64
// offsets of the lists. An int64 constant `form` has the numbers of an operator that are no
// Tensors. Inputs that an operator does not use have one element of any value.
#include "ops/operator.h"
#include "sequence/attention.h"
#include "sequence/norm.h"
#include "sequence/places.h"
#include "util/float_mode.h"

namespace msrec {
namespace {

const float* Floats(const Args& args, int i, const char* name, int64_t columns) {
  if (!args.IsType(i, "float32")) {
    throw std::invalid_argument(std::string(name) + " must be float32, got " + args.dtypes[i]);
  }
  if (args.ndims[i] != 2 || (columns >= 0 && args.shapes[i][1] != columns)) {
    throw std::invalid_argument(std::string(name) + " must have the shape [N, " +
                                (columns >= 0 ? std::to_string(columns) : "width") + "], got " +
                                args.ShapeText(i));
  }
  return static_cast<const float*>(args.params[i]);
}

// The lists of argument i, offsets, over the rows of argument `values`.
Lists ListsOf(const Args& args, int i, int values) {
  if (!args.IsType(i, "int64") || args.ndims[i] != 1 || args.Size(i) == 0) {
    throw std::invalid_argument("offsets must be an int64 Tensor [B + 1], got " +
                                args.ShapeText(i) + " of " + args.dtypes[i]);
  }
  return Lists(static_cast<const int64_t*>(args.params[i]), static_cast<int64_t>(args.Size(i)) - 1,
               args.shapes[values][0]);
}

const int64_t* TimesOf(const Args& args, int i, const Lists& lists) {
  if (!args.IsType(i, "int64") || static_cast<int64_t>(args.Size(i)) != lists.values()) {
    throw std::invalid_argument("times must be an int64 Tensor [N] with an element for each of " +
                                std::to_string(lists.values()) + " values, got " +
                                args.ShapeText(i) + " of " + args.dtypes[i]);
  }
  return static_cast<const int64_t*>(args.params[i]);
}

// Arguments of attention: form [heads, kind, has distances, has times], scales [of scores, of
// weights], qkv [N, 3 width], offsets, times, bias by distance, bias by time.
struct AttentionArgs {
  explicit AttentionArgs(const Args& args)
      : numbers(args.Data<int64_t>(0, "the form", 4)),
        scales(args.Data<float>(1, "the scales", 2)),
        qkv(Floats(args, 2, "qkv", -1)),
        lists(ListsOf(args, 3, 2)) {
    form.heads = numbers[0];
    form.kind = static_cast<Attention>(numbers[1]);
    if (form.heads < 1 || args.shapes[2][1] % (3 * form.heads) != 0) {
      throw std::invalid_argument("qkv must have 3 * heads * dim columns for " +
                                  std::to_string(form.heads) + " heads, got " + args.ShapeText(2));
    }
    form.dim = args.shapes[2][1] / (3 * form.heads);
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

// form [has times], table [places, dim], times of argument i if the form has them.
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
  const msrec::AttentionArgs given(args);
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
  const msrec::AttentionArgs given(args);
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
