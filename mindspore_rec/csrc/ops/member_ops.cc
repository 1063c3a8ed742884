// SPDX-License-Identifier: Apache-2.0
//
// Two operators for the rows of an ensemble. The forward operator repeats the rows for each member,
// and multiplies the rows by the member's factors. The second operator is the backward pass.
#include "dense/member_rows.h"
#include "ops/operator.h"
#include "util/float_mode.h"

namespace msrec {
namespace {

// Returns a batch that consists of the rows (argument 0) and the factors (argument 1).
MemberBatch MemberBatchOf(const Args& args) {
  if (args.ndims[0] < 1 || args.ndims[1] != 2) {
    throw std::invalid_argument(std::string(args.op) +
                                ": rows and factors must be [B, ...] and [K, width], got " +
                                args.ShapeText(0) + " and " + args.ShapeText(1));
  }
  MemberBatch batch;
  batch.rows = args.shapes[0][0];
  batch.members = args.shapes[1][0];
  batch.width = args.shapes[1][1];
  batch.x = args.Data<float>(0, "rows", static_cast<size_t>(batch.rows * batch.width));
  batch.factors = args.Data<float>(1, "factors", static_cast<size_t>(batch.members * batch.width));
  return batch;
}

size_t RepeatedSize(const MemberBatch& batch) {
  return static_cast<size_t>(batch.members * batch.rows * batch.width);
}

}  // namespace
}  // namespace msrec

using msrec::MemberBatch;
using msrec::Shape;
using msrec::ThreadPool;

// (rows [B, ...], factors [K, width]) -> repeated rows [K * B, width]
MSREC_EXPORT Shape MsrMemberRowsInferShape(int* ndims, int64_t** shapes, void*) {
  const int64_t rows = msrec::Dimension(ndims, shapes, 0);
  const int64_t members = msrec::Dimension(ndims, shapes, 1);
  const int64_t width = msrec::Dimension(ndims, shapes, 1, 1);
  // A negative dimension means that the size is not known yet.
  return {rows < 0 || members < 0 ? -1 : rows * members, width};
}
MSREC_OP(MsrMemberRows) {
  args.RequireCount(3);
  const MemberBatch batch = msrec::MemberBatchOf(args);
  const msrec::DefaultFloatMode float_mode;
  msrec::RepeatRows(batch, args.Data<float>(2, "repeated rows", msrec::RepeatedSize(batch)),
                    &ThreadPool::Global());
}

// (rows, factors, gradient of the repeated rows) -> (gradient of the rows, gradient of the factors)
MSREC_EXPORT std::vector<Shape> MsrMemberRowsGradientInferShape(int* ndims, int64_t** shapes,
                                                                void*) {
  return {msrec::ShapeOf(ndims, shapes, 0), msrec::ShapeOf(ndims, shapes, 1)};
}
MSREC_OP(MsrMemberRowsGradient) {
  args.RequireCount(5);
  const MemberBatch batch = msrec::MemberBatchOf(args);
  const float* gradient =
      args.Data<float>(2, "the gradient of the repeated rows", msrec::RepeatedSize(batch));
  float* of_x = args.Data<float>(3, "the gradient of the rows", args.Size(0));
  float* of_factors = args.Data<float>(4, "the gradient of the factors", args.Size(1));
  const msrec::DefaultFloatMode float_mode;
  msrec::RepeatedRowsGradient(batch, gradient, of_x, of_factors, &ThreadPool::Global());
}
