// SPDX-License-Identifier: Apache-2.0
//
// Operators: rows by key, as MapParameter has them. One worker may run them while the others do
// something else, so they ask by requests; but a lookup that is trained is part of a step of all.
#include "ops/operator.h"
#include "util/bytes.h"

using msrec::Args;
using msrec::Call;
using msrec::OpKind;
using msrec::Shape;

// (ids, descriptor, like, anchor) -> (rows, ticket): MapParameter.get. Inserts with or without an
// optimizer, and is trained by one.
MSREC_EXPORT std::vector<Shape> MsrMapGetInferShape(int* ndims, int64_t** shapes, void*) {
  return {msrec::Rows(ndims, shapes, 0, 2), {1}};
}
MSREC_OP(MsrMapGet) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kMap);
  table.RequireRows();
  const auto keys = table.Ids(args, 0, "key");
  int64_t ticket = 0;
  if (table->has_optimizer()) {
    ticket = table.ByExchange(
        [&](auto& rows) { return rows.LookupTrain(keys, table.filter(), args.Data<float>(4)); });
  } else {
    table.ByRequests(
        [&](auto& rows) { rows.Get(keys, table.filter(), true, args.Data<float>(4)); });
  }
  *args.Data<int64_t>(5) = ticket;
  return 0;
}

// (keys, descriptor, like) -> rows: MapParameter.get without inserting, never trained
MSREC_EXPORT Shape MsrFindInferShape(int* ndims, int64_t** shapes, void*) {
  return msrec::Rows(ndims, shapes, 0, 2);
}
MSREC_OP(MsrFind) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kMap);
  table.RequireRows();
  const auto keys = table.Ids(args, 0, "key");
  table.ByRequests([&](auto& rows) { rows.Get(keys, table.filter(), false, args.Data<float>(3)); });
  return 0;
}

// (keys, values, descriptor) -> 0
MSREC_EXPORT Shape MsrPutInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrPut) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 2, OpKind::kMap);
  table.RequireFloat(args, 1, "value");
  const size_t dim = static_cast<size_t>(table->dim());
  const auto keys = table.Ids(args, 0, "key");
  table.Require(args.Leads(0, 1) && args.Size(1) == keys.size * dim,
                "value must have the shape of key, " + args.ShapeText(0) +
                    ", followed by that of a " + "row, " + std::to_string(dim) + " elements, got " +
                    args.ShapeText(1));
  table.ByRequests([&](auto& rows) { rows.Put(keys, args.Data<float>(1), keys.size); });
  *args.Data<int32_t>(3) = 0;
  return 0;
}

// (keys, descriptor) -> 0
MSREC_EXPORT Shape MsrEraseInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrErase) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kMap);
  const auto keys = table.Ids(args, 0, "key");
  table.ByRequests([&](auto& rows) { rows.Erase(keys); });
  *args.Data<int32_t>(2) = 0;
  return 0;
}

// (keys, descriptor) -> bool of the shape of keys
MSREC_EXPORT Shape MsrContainsInferShape(int* ndims, int64_t** shapes, void*) {
  return Shape(shapes[0], shapes[0] + ndims[0]);
}
MSREC_OP(MsrContains) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kMap);
  const auto keys = table.Ids(args, 0, "key");
  table.ByRequests([&](auto& rows) { rows.Contains(keys, args.Data<bool>(2)); });
  return 0;
}

// (descriptor) -> number of rows, int64 [1]
MSREC_EXPORT Shape MsrSizeInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrSize) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 0, OpKind::kMap);
  *args.Data<int64_t>(1) =
      static_cast<int64_t>(table.ByRequests([](auto& rows) { return rows.Size(); }));
  return 0;
}

// (any tensor with one element a row, descriptor) -> keys int64 [rows]
MSREC_EXPORT Shape MsrKeysInferShape(int*, int64_t** shapes, void*) { return {shapes[0][0]}; }
MSREC_OP(MsrKeys) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kMap);
  const std::vector<int64_t> keys = table.ByRequests([](auto& rows) { return rows.Keys(); });
  if (keys.size() != args.Size(0))
    throw std::runtime_error("the table changed while its keys were read");
  msrec::CopyBytes(params[2], keys.data(), keys.size() * sizeof(int64_t));
  return 0;
}

// (any tensor with one element a row, descriptor, like) -> values [rows, dim], in the order of
// MsrKeys
MSREC_EXPORT Shape MsrValuesInferShape(int*, int64_t** shapes, void*) {
  return {shapes[0][0], shapes[2][0]};
}
MSREC_OP(MsrValues) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kMap);
  const msrec::ExportedRows rows = table.ByRequests([](auto& all) { return all.Export(false); });
  if (rows.n != args.Size(0))
    throw std::runtime_error("the table changed while its values were read");
  msrec::CopyBytes(params[3], rows.values.get(), rows.n * rows.dim * sizeof(float));
  return 0;
}
