// SPDX-License-Identifier: Apache-2.0
//
// Operators: lookups in tables with a device cache.
#include "ops/operator.h"

using msrec::Args;
using msrec::Call;
using msrec::OpKind;
using msrec::Shape;

// (ids, descriptor, anchor, values of the cache) -> (slots int32 of the shape of ids, ticket)
MSREC_EXPORT std::vector<Shape> MsrLookupSlotsInferShape(int* ndims, int64_t** shapes, void*) {
  return {Shape(shapes[0], shapes[0] + ndims[0]), {1}};
}
MSREC_OP(MsrLookupSlots) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kLookup);
  *args.Data<int64_t>(5) = table->LookupSlots(table.Ids(args, 0, "ids"), table.filter(),
                                              args.Data<float>(3), args.Data<int32_t>(4));
  return 0;
}

// (ticket, descriptor) -> token: the lookup's gradient has been added in the graph
MSREC_EXPORT Shape MsrReportGradientInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrReportGradient) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kAccumulate);
  table->ReportGradient(*args.Data<int64_t>(0));
  *args.Data<float>(2) = 0.0f;
  return 0;
}

// (token, descriptor) -> number of slots with a gradient, at least 1: int64 [1]
MSREC_EXPORT Shape MsrCountTouchedInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrCountTouched) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kStep);
  *args.Data<int64_t>(2) = static_cast<int64_t>(std::max<size_t>(table->CountTouched(), 1));
  return 0;
}

// (any tensor with one element a slot, descriptor) -> slots with a gradient, int32; then the
// scratch slot
MSREC_EXPORT Shape MsrTouchedInferShape(int*, int64_t** shapes, void*) { return {shapes[0][0]}; }
MSREC_OP(MsrTouched) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kStep);
  table->Touched(args.Data<int32_t>(2), args.Size(2));
  return 0;
}
