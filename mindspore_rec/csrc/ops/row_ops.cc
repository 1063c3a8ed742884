// SPDX-License-Identifier: Apache-2.0
//
// Operators on rows by key, with the semantics of MapParameter's methods. One worker may run an
// operator on rows while the other workers do not, so the operator sends requests to the owners of
// the keys. Only a training lookup is a part of a step, so only a training lookup is a collective
// call of all workers.
#include "ops/operator.h"
#include "util/bytes.h"

using msrec::Call;
using msrec::OpKind;
using msrec::Shape;

// The operator for MapParameter.get: (ids, descriptor, like, anchor) -> (rows, ticket). The
// operator inserts missing rows even if the table has no optimizer. If the table has an optimizer,
// the operator is a training lookup.
MSREC_EXPORT std::vector<Shape> MsrMapGetInferShape(int* ndims, int64_t** shapes, void*) {
  return {msrec::Rows(ndims, shapes, 0, 2), {1}};
}
MSREC_OP(MsrMapGet) {
  args.RequireCount(6);
  Call table(args, 1, OpKind::kMap);
  table.RequireRows();
  const auto keys = table.Ids(args, 0, "key");
  float* out = table.Rows(args, 4, "the output of rows", keys.size);
  auto& ticket = args.Number<int64_t>(5, "the ticket");
  if (table->has_optimizer()) {
    ticket =
        table.ByExchange([&](auto& rows) { return rows.LookupTrain(keys, table.filter(), out); });
  } else {
    table.ByRequests([&](auto& rows) { rows.Get(keys, table.filter(), true, out); });
    ticket = 0;
  }
}

// (keys, descriptor, like) -> rows: MapParameter.get without inserting, never trained
MSREC_EXPORT Shape MsrFindInferShape(int* ndims, int64_t** shapes, void*) {
  return msrec::Rows(ndims, shapes, 0, 2);
}
MSREC_OP(MsrFind) {
  args.RequireCount(4);
  Call table(args, 1, OpKind::kMap);
  table.RequireRows();
  const auto keys = table.Ids(args, 0, "key");
  float* out = table.Rows(args, 3, "the output of rows", keys.size);
  table.ByRequests([&](auto& rows) { rows.Get(keys, table.filter(), false, out); });
}

// (keys, values, descriptor) -> 0
MSREC_EXPORT Shape MsrPutInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrPut) {
  args.RequireCount(4);
  Call table(args, 2, OpKind::kMap);
  table.RequireFloat(args, 1, "value");
  const size_t dim = table.dim();
  const auto keys = table.Ids(args, 0, "key");
  table.Require(args.Leads(0, 1) && args.Size(1) == keys.size * dim,
                "value must have the shape of key, " + args.ShapeText(0) +
                    ", followed by that of a " + "row, " + std::to_string(dim) + " elements, got " +
                    args.ShapeText(1));
  const float* values = table.Rows(args, 1, "value", keys.size);
  auto& done = args.Number<int32_t>(3, "the output");
  table.ByRequests([&](auto& rows) { rows.Put(keys, values, keys.size); });
  done = 0;
}

// (keys, descriptor) -> 0
MSREC_EXPORT Shape MsrEraseInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrErase) {
  args.RequireCount(3);
  Call table(args, 1, OpKind::kMap);
  const auto keys = table.Ids(args, 0, "key");
  auto& done = args.Number<int32_t>(2, "the output");
  table.ByRequests([&](auto& rows) { rows.Erase(keys); });
  done = 0;
}

// (keys, descriptor) -> bool of the shape of keys
MSREC_EXPORT Shape MsrContainsInferShape(int* ndims, int64_t** shapes, void*) {
  return msrec::ShapeOf(ndims, shapes, 0);
}
MSREC_OP(MsrContains) {
  args.RequireCount(3);
  Call table(args, 1, OpKind::kMap);
  const auto keys = table.Ids(args, 0, "key");
  bool* out = args.Data<bool>(2, "the output", keys.size);
  table.ByRequests([&](auto& rows) { rows.Contains(keys, out); });
}

// (descriptor) -> number of rows, int64 [1]
MSREC_EXPORT Shape MsrSizeInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrSize) {
  args.RequireCount(2);
  Call table(args, 0, OpKind::kMap);
  auto& size = args.Number<int64_t>(1, "the output");
  size = static_cast<int64_t>(table.ByRequests([](auto& rows) { return rows.Size(); }));
}

// (any tensor with one element per row, descriptor) -> keys int64 [rows]
MSREC_EXPORT Shape MsrKeysInferShape(int* ndims, int64_t** shapes, void*) {
  return {msrec::Dimension(ndims, shapes, 0)};
}
MSREC_OP(MsrKeys) {
  args.RequireCount(3);
  Call table(args, 1, OpKind::kMap);
  auto* out = args.Data<int64_t>(2, "the output of keys", args.Size(0));
  const std::vector<int64_t> keys = table.ByRequests([](auto& rows) { return rows.Keys(); });
  if (keys.size() != args.Size(0))
    throw std::runtime_error("the table changed while its keys were read");
  msrec::CopyBytes(out, keys.data(), keys.size() * sizeof(int64_t));
}

// (any tensor with one element per row, descriptor, like) -> values [rows, dim], in the order of
// MsrKeys
MSREC_EXPORT Shape MsrValuesInferShape(int* ndims, int64_t** shapes, void*) {
  return {msrec::Dimension(ndims, shapes, 0), msrec::Dimension(ndims, shapes, 2)};
}
MSREC_OP(MsrValues) {
  args.RequireCount(4);
  Call table(args, 1, OpKind::kMap);
  float* out = table.Rows(args, 3, "the output of values", args.Size(0));
  const msrec::ExportedRows rows = table.ByRequests([](auto& all) { return all.Export(false); });
  if (rows.n != args.Size(0))
    throw std::runtime_error("the table changed while its values were read");
  msrec::CopyBytes(out, rows.values.get(), rows.n * rows.dim * sizeof(float));
}
