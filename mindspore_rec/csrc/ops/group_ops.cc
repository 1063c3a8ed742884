// SPDX-License-Identifier: Apache-2.0
//
// Operators: several tables at once.
#include "ops/operator.h"
#include "table/table_tasks.h"

namespace msrec {
namespace {

// Several tables in one operator: column t of a tensor belongs to table t.
class Group {
 public:
  // The columns are the last dimension of `tensor`, or the one before where `inner` is 1.
  Group(const Args& args, int tensor, int descriptors, int inner = 0)
      : args_(args), tensor_(tensor), descriptors_(args.Data<int64_t>(descriptors)) {
    columns_ = static_cast<size_t>(args.shapes[descriptors][0]);
    const int at = args.ndims[tensor] - 1 - inner;
    if (at < 0 || static_cast<size_t>(args.shapes[tensor][at]) != columns_) {
      throw std::invalid_argument("ids must be [..., " + std::to_string(columns_) +
                                  "], one column a table, got " + args.ShapeText(tensor));
    }
    for (int d = 0; d < at; ++d) rows_ *= static_cast<size_t>(args.shapes[tensor][d]);
    for (size_t column = 0; column < columns_; ++column) {
      tasks_.Add(Descriptor(column).table_id());
    }
  }

  size_t rows() const { return rows_; }
  // Throws as a lookup of one of the tables would, before a lookup of another has inserted rows.
  void CheckLookups(bool train) const {
    for (size_t column = 0; column < columns_; ++column) {
      Call table(Descriptor(column), OpKind::kCount);
      table->CheckLookup(Ids(table, column), table.filter(), train);
    }
  }
  bool over_workers() const {
    return columns_ > 0 && Call(Descriptor(0), OpKind::kCount).over_workers() != nullptr;
  }
  // Look up all columns by one exchange between workers; with `train`, fill the tickets.
  void LookUpOverWorkers(bool train, float* out, int64_t* tickets) const {
    std::vector<Call> tables;
    std::vector<LookupRequest> requests;
    tables.reserve(columns_);
    for (size_t column = 0; column < columns_; ++column) {
      tables.emplace_back(Descriptor(column), column == 0 ? OpKind::kLookup : OpKind::kCount);
      Call& table = tables.back();
      table.RequireRows();
      requests.push_back({table.over_workers(), Ids(table, column), table.filter(), nullptr,
                          out + column * table->dim(), 0});
    }
    msrec::LookUpOverWorkers(requests.data(), requests.size(), train);
    for (size_t column = 0; train && column < columns_; ++column) {
      tickets[column] = requests[column].ticket;
    }
  }
  // Call fn(table, column) with all columns, in parallel over tables.
  template <typename Fn>
  void ForEach(OpKind kind, const Fn& fn) const {
    tasks_.ForEach([&](size_t column) {
      Call table(Descriptor(column), kind);
      fn(table, column);
    });
  }
  IdView Ids(const Call& table, size_t column) const {
    IdView ids = table.Ids(args_, tensor_, "ids");
    ids.data = static_cast<const char*>(ids.data) + column * (ids.is_int64 ? 8 : 4);
    ids.size = rows_;
    ids.stride = columns_;
    return ids;
  }

 private:
  LookupDescriptor Descriptor(size_t column) const {
    return LookupDescriptor(descriptors_ + column * LookupDescriptor::kSize);
  }

  const Args& args_;
  const int tensor_;
  const int64_t* descriptors_;
  size_t columns_ = 0;
  size_t rows_ = 1;
  TableTasks<int64_t> tasks_;  // columns by table id
};

}  // namespace
}  // namespace msrec

using msrec::Args;
using msrec::Call;
using msrec::Group;
using msrec::OpKind;
using msrec::Shape;

// (ids [..., tables], descriptors [tables, 7], like, anchor) -> (rows [..., tables, dim], tickets)
// Column t of the ids is looked up in table t; several columns may be of one table.
MSREC_EXPORT std::vector<Shape> MsrGroupLookupTrainInferShape(int* ndims, int64_t** shapes, void*) {
  return {msrec::Rows(ndims, shapes, 0, 2), {shapes[1][0]}};
}
MSREC_OP(MsrGroupLookupTrain) {
  const Args args{params, ndims, shapes, dtypes};
  const Group group(args, 0, 1);
  int64_t* tickets = args.Data<int64_t>(5);
  if (group.over_workers()) {
    group.LookUpOverWorkers(true, args.Data<float>(4), tickets);
    return 0;
  }
  group.CheckLookups(true);
  group.ForEach(OpKind::kLookup, [&](Call& table, size_t column) {
    tickets[column] = table->LookupTrain(group.Ids(table, column), table.filter(),
                                         args.Data<float>(4) + column * table->dim());
  });
  return 0;
}

// (ids [..., tables], descriptors [tables, 7], like, anchor) -> rows [..., tables, dim]
MSREC_EXPORT Shape MsrGroupLookupEvalInferShape(int* ndims, int64_t** shapes, void*) {
  return msrec::Rows(ndims, shapes, 0, 2);
}
MSREC_OP(MsrGroupLookupEval) {
  const Args args{params, ndims, shapes, dtypes};
  const Group group(args, 0, 1);
  if (group.over_workers()) {
    group.LookUpOverWorkers(false, args.Data<float>(4), nullptr);
    return 0;
  }
  group.ForEach(OpKind::kLookup, [&](Call& table, size_t column) {
    table->LookupEval(group.Ids(table, column), table.filter(),
                      args.Data<float>(4) + column * table->dim());
  });
  return 0;
}

// (grad [..., tables, dim], tickets, descriptors) -> token
MSREC_EXPORT Shape MsrGroupAccumulateInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrGroupAccumulate) {
  const Args args{params, ndims, shapes, dtypes};
  const Group group(args, 0, 2, 1);
  const int64_t* tickets = args.Data<int64_t>(1);
  group.ForEach(OpKind::kAccumulate, [&](Call& table, size_t column) {
    table.RequireFloat(args, 0, "gradient");
    const float* gradient = args.Data<float>(0) + column * table->dim();
    table.ByExchange([&](auto& rows) { rows.Accumulate(tickets[column], gradient, group.rows()); });
  });
  *args.Data<float>(3) = 0.0f;
  return 0;
}
