// SPDX-License-Identifier: Apache-2.0
//
// Operators for lookups in tables with a device cache.
#include "ops/operator.h"

using msrec::Call;
using msrec::OpKind;
using msrec::Shape;

// (ids, descriptor, anchor, values of the cache) -> (slots int32 of the shape of ids, ticket)
MSREC_EXPORT std::vector<Shape> MsrLookupSlotsInferShape(int* ndims, int64_t** shapes, void*) {
  return {msrec::ShapeOf(ndims, shapes, 0), {1}};
}
MSREC_OP(MsrLookupSlots) {
  args.RequireCount(6);
  Call table(args, 1, OpKind::kLookup);
  const auto ids = table.Ids(args, 0, "ids");
  // The operator does not read `values`, but only checks that `values` is the address of the cache.
  auto* values = args.Data<float>(3, "values", args.Size(3));
  auto* slots = args.Data<int32_t>(4, "the output of slots", ids.size);
  auto& ticket = args.Number<int64_t>(5, "the ticket");
  ticket = table->device().LookupSlots(ids, table.filter(), values, slots);
}

// (ticket, descriptor) -> token: the lookup's gradient has been added in the graph
MSREC_EXPORT Shape MsrReportGradientInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrReportGradient) {
  args.RequireCount(3);
  Call table(args, 1, OpKind::kAccumulate);
  auto& token = args.Number<float>(2, "the token");
  table->device().ReportGradient(args.Number<int64_t>(0, "the ticket"));
  token = table.NewToken();
}

// (token, descriptor) -> number of slots with a gradient, at least 1: int64 [1]
MSREC_EXPORT Shape MsrCountTouchedInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrCountTouched) {
  args.RequireCount(3);
  Call table(args, 1, OpKind::kStep);
  auto& count = args.Number<int64_t>(2, "the output");
  count = static_cast<int64_t>(std::max<size_t>(table->device().CountTouched(), 1));
}

// (any tensor with one element per slot, descriptor) -> slots with a gradient, int32; then the
// scratch slot
MSREC_EXPORT Shape MsrTouchedInferShape(int* ndims, int64_t** shapes, void*) {
  return {msrec::Dimension(ndims, shapes, 0)};
}
MSREC_OP(MsrTouched) {
  args.RequireCount(3);
  Call table(args, 1, OpKind::kStep);
  table->device().Touched(args.Data<int32_t>(2, "the output of slots", args.Size(0)), args.Size(0));
}
