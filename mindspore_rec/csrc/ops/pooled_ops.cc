// SPDX-License-Identifier: Apache-2.0
//
// Operators: pooled lookups, which combine the rows of each bag into one row.
#include "ops/operator.h"

namespace msrec {
namespace {

// Bags of a pooled lookup. In a 2-D ids tensor, each row is a bag. If the ids tensor is 1-D, an
// offsets tensor defines the range of ids of each bag.
struct Bags {
  std::vector<int64_t> rows;
  BagView view;

  Bags(const Args& args, int ids, int offsets, int weights, const Call& table) {
    if (args.ndims[ids] == 2) {
      const int64_t n = args.shapes[ids][0];
      for (int64_t b = 0; b < n; ++b) rows.push_back(b * args.shapes[ids][1]);
      view.offsets = {rows.data(), rows.size(), true};
    } else {
      view.offsets = table.Integers(args, offsets, "offsets");
    }
    view.combiner = table.descriptor().combiner();
    if (!table.descriptor().weighted()) return;
    table.RequireFloat(args, weights, "per_sample_weights");
    table.Require(args.ndims[weights] == args.ndims[ids] && args.Leads(ids, weights),
                  "per_sample_weights must have the shape of ids, " + args.ShapeText(ids) +
                      ", got " + args.ShapeText(weights));
    view.weights = args.Data<float>(weights, "per_sample_weights", args.Size(ids));
  }
};

Shape Pooled(const int* ndims, int64_t* const* shapes) {
  return {Dimension(ndims, shapes, ndims[0] == 2 ? 0 : 1), Dimension(ndims, shapes, 4)};
}

}  // namespace
}  // namespace msrec

using msrec::Bags;
using msrec::Call;
using msrec::OpKind;
using msrec::Shape;

// (ids, offsets, weights, descriptor, like, anchor) -> (out, ticket)
MSREC_EXPORT std::vector<Shape> MsrPoolTrainInferShape(int* ndims, int64_t** shapes, void*) {
  return {msrec::Pooled(ndims, shapes), {1}};
}
MSREC_OP(MsrPoolTrain) {
  args.RequireCount(8);
  Call table(args, 3, OpKind::kLookup);
  const Bags bags(args, 0, 1, 2, table);
  const auto ids = table.Ids(args, 0, "ids");
  float* out = table.Rows(args, 6, "the output of bags", bags.view.offsets.size);
  auto& ticket = args.Number<int64_t>(7, "the ticket");
  ticket = table.ByExchange(
      [&](auto& rows) { return rows.PoolTrain(ids, table.filter(), bags.view, out); });
}

// (ids, offsets, weights, descriptor, like, anchor) -> out
MSREC_EXPORT Shape MsrPoolEvalInferShape(int* ndims, int64_t** shapes, void*) {
  return msrec::Pooled(ndims, shapes);
}
MSREC_OP(MsrPoolEval) {
  args.RequireCount(7);
  Call table(args, 3, OpKind::kLookup);
  const Bags bags(args, 0, 1, 2, table);
  const auto ids = table.Ids(args, 0, "ids");
  float* out = table.Rows(args, 6, "the output of bags", bags.view.offsets.size);
  table.ByExchange([&](auto& rows) { rows.PoolEval(ids, table.filter(), bags.view, out); });
}
