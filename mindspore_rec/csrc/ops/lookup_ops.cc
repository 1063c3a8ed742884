// SPDX-License-Identifier: Apache-2.0
//
// Operators: lookups and their gradients.
#include "ops/operator.h"

using msrec::Call;
using msrec::OpKind;
using msrec::Shape;

// (ids, descriptor, like, anchor) -> (rows, ticket). If the table's values are bfloat16, the rows
// may be bfloat16; otherwise, the rows are float32. The gradient has the type of the rows.
MSREC_EXPORT std::vector<Shape> MsrLookupTrainInferShape(int* ndims, int64_t** shapes, void*) {
  return {msrec::Rows(ndims, shapes, 0, 2), {1}};
}
MSREC_OP(MsrLookupTrain) {
  args.RequireCount(6);
  Call table(args, 1, OpKind::kLookup);
  const auto ids = table.Ids(args, 0, "ids");
  const msrec::RowsOut out = table.AnyRows(args, 4, "the output of rows", ids.size);
  auto& ticket = args.Number<int64_t>(5, "the ticket");
  ticket = table.ByExchange([&](auto& rows) { return rows.LookupTrain(ids, table.filter(), out); });
}

// (ids, descriptor, like, anchor) -> rows
MSREC_EXPORT Shape MsrLookupEvalInferShape(int* ndims, int64_t** shapes, void*) {
  return msrec::Rows(ndims, shapes, 0, 2);
}
MSREC_OP(MsrLookupEval) {
  args.RequireCount(5);
  Call table(args, 1, OpKind::kLookup);
  const auto ids = table.Ids(args, 0, "ids");
  const msrec::RowsOut out = table.AnyRows(args, 4, "the output of rows", ids.size);
  table.ByExchange([&](auto& rows) { rows.LookupEval(ids, table.filter(), out); });
}

// Arguments: (gradient, descriptor). The operator runs only if a gradient arrives for a lookup in
// evaluation mode. The operator always throws, because the gradient of an evaluation lookup cannot
// train the table.
MSREC_EXPORT Shape MsrRefuseGradientInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrRefuseGradient) {
  args.RequireCount(3);
  Call table(args, 1, OpKind::kAccumulate);
  throw std::runtime_error(
      "table '" + table->config().name +
      "': got a gradient for a lookup in evaluation mode, so it would never learn; call "
      "set_train() "
      "on the outermost cell before training, or freeze the table with requires_grad=False");
}

// (grad, ticket, descriptor) -> token (table/core/gradient_tokens.h): the gradient of the table's
// anchor
MSREC_EXPORT Shape MsrAccumulateInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrAccumulate) {
  args.RequireCount(4);
  Call table(args, 2, OpKind::kAccumulate);
  if (!args.IsType(0, msrec::kBfloat16)) table.RequireFloat(args, 0, "gradient");
  const size_t n = args.Size(0) / table.dim();
  const msrec::Gradient gradient(table.AnyRows(args, 0, "gradient", n));
  const int64_t ticket = args.Number<int64_t>(1, "the ticket");
  auto& token = args.Number<float>(3, "the token");
  if (ticket == 0) {
    throw msrec::NoOptimizer("table '" + table->config().name +
                             "' got a gradient but no optimizer of mindspore_rec.optim covers it");
  }
  table.ByExchange([&](auto& rows) { rows.Accumulate(ticket, gradient, n); });
  token = table.NewToken();
}
