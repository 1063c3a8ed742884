// SPDX-License-Identifier: Apache-2.0
//
// Operators for several tables at once.
#include <set>

#include "ops/operator.h"
#include "table/table_tasks.h"

namespace msrec {
namespace {

// The tables of one operator. Column t of a tensor belongs to the table of descriptor t.
class Group {
 public:
  // The columns are the last dimension of `tensor`, or the second-to-last dimension if `inner` is
  // 1.
  Group(const Args& args, int tensor, int descriptors, int inner = 0)
      : args_(args),
        tensor_(tensor),
        columns_(static_cast<size_t>(Dimension(args.ndims, args.shapes, descriptors))),
        descriptors_(
            args.Data<int64_t>(descriptors, "descriptors", columns_ * LookupDescriptor::kSize)) {
    const int at = args.ndims[tensor] - 1 - inner;
    if (at < 0 || static_cast<size_t>(args.shapes[tensor][at]) != columns_) {
      throw std::invalid_argument("ids must be [..., " + std::to_string(columns_) +
                                  "], one column a table, got " + args.ShapeText(tensor));
    }
    for (int d = 0; d < at; ++d) rows_ *= static_cast<size_t>(args.shapes[tensor][d]);
    found_.reserve(columns_);
    for (size_t column = 0; column < columns_; ++column) {
      const int64_t id = Descriptor(column).table_id();
      tasks_.Add(id);
      found_.push_back(FindTable(id));
    }
  }

  size_t rows() const { return rows_; }
  size_t columns() const { return columns_; }
  // Returns argument i, which must be float32 [rows, columns, dim]; the rows of each table must
  // have dim floats.
  float* Rows(int i, const char* what) const {
    const size_t dim = columns_ == 0 ? 0 : args_.Size(i) / std::max<size_t>(rows_ * columns_, 1);
    for (size_t column = 0; rows_ > 0 && column < columns_; ++column) {
      const auto of_table = static_cast<size_t>(found_[column]->table->dim());
      if (of_table != dim) args_.Data<float>(i, what, rows_ * columns_ * of_table);
    }
    return args_.Data<float>(i, what, rows_ * columns_ * dim);
  }
  // Throws an error if the lookup in any of the tables would throw an error. CheckLookups is called
  // before any lookup inserts rows.
  void CheckLookups(bool train) const {
    for (size_t column = 0; column < columns_; ++column) {
      Call table = CallOf(column, OpKind::kCount);
      table->CheckLookup(Ids(table, column), table.filter(), train);
    }
  }
  bool over_workers() const { return columns_ > 0 && found_[0]->over_workers != nullptr; }
  // Looks up all columns in a single exchange between workers. If `train` is true, writes one
  // ticket per column.
  void LookUpOverWorkers(bool train, float* out, int64_t* tickets) const {
    std::vector<Call> tables;
    std::vector<LookupRequest> requests;
    tables.reserve(columns_);
    for (size_t column = 0; column < columns_; ++column) {
      tables.emplace_back(Descriptor(column), found_[column],
                          column == 0 ? OpKind::kLookup : OpKind::kCount);
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
  // Calls fn(table, column) for all columns; different tables are processed in parallel.
  template <typename Fn>
  void ForEach(OpKind kind, const Fn& fn) const {
    tasks_.ForEach([&](size_t column) {
      Call table = CallOf(column, kind);
      fn(table, column);
    });
  }
  // Returns one token for the gradients of all tables, and records the token once in each table.
  float NewToken() const {
    const float token = GradientTokens::Next();
    std::set<int64_t> noted;
    for (size_t column = 0; column < columns_; ++column) {
      if (!noted.insert(Descriptor(column).table_id()).second) continue;
      found_[column]->table->NoteToken(token);
    }
    return token;
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

  Call CallOf(size_t column, OpKind kind) const {
    return Call(Descriptor(column), found_[column], kind);
  }

  const Args& args_;
  const int tensor_;
  const size_t columns_;
  const int64_t* const descriptors_;
  std::vector<std::shared_ptr<Registered>> found_;  // one table per column
  size_t rows_ = 1;
  TableTasks<int64_t> tasks_;  // the columns of each table, by table id
};

}  // namespace
}  // namespace msrec

using msrec::Call;
using msrec::Group;
using msrec::OpKind;
using msrec::Shape;

// (ids [..., tables], descriptors [tables, 7], like, anchor) -> (rows [..., tables, dim], tickets).
// Column t of the ids is looked up in the table of descriptor t; several descriptors may belong to
// the same table.
MSREC_EXPORT std::vector<Shape> MsrGroupLookupTrainInferShape(int* ndims, int64_t** shapes, void*) {
  return {msrec::Rows(ndims, shapes, 0, 2), {msrec::Dimension(ndims, shapes, 1)}};
}
MSREC_OP(MsrGroupLookupTrain) {
  args.RequireCount(6);
  const Group group(args, 0, 1);
  float* out = group.Rows(4, "the output of rows");
  auto* tickets = args.Data<int64_t>(5, "the tickets", group.columns());
  if (group.over_workers()) {
    group.LookUpOverWorkers(true, out, tickets);
    return;
  }
  group.CheckLookups(true);
  group.ForEach(OpKind::kLookup, [&](Call& table, size_t column) {
    tickets[column] =
        table->LookupTrain(group.Ids(table, column), table.filter(), out + column * table.dim());
  });
}

// (ids [..., tables], descriptors [tables, 7], like, anchor) -> rows [..., tables, dim]
MSREC_EXPORT Shape MsrGroupLookupEvalInferShape(int* ndims, int64_t** shapes, void*) {
  return msrec::Rows(ndims, shapes, 0, 2);
}
MSREC_OP(MsrGroupLookupEval) {
  args.RequireCount(5);
  const Group group(args, 0, 1);
  float* out = group.Rows(4, "the output of rows");
  if (group.over_workers()) {
    group.LookUpOverWorkers(false, out, nullptr);
    return;
  }
  group.ForEach(OpKind::kLookup, [&](Call& table, size_t column) {
    table->LookupEval(group.Ids(table, column), table.filter(), out + column * table.dim());
  });
}

// (grad [..., tables, dim], tickets, descriptors) -> token
MSREC_EXPORT Shape MsrGroupAccumulateInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrGroupAccumulate) {
  args.RequireCount(4);
  const Group group(args, 0, 2, 1);
  const float* gradients = group.Rows(0, "gradient");
  const auto* tickets = args.Data<int64_t>(1, "the tickets", group.columns());
  auto& token = args.Number<float>(3, "the token");
  group.ForEach(OpKind::kAccumulate, [&](Call& table, size_t column) {
    const float* gradient = gradients + column * table.dim();
    table.ByExchange([&](auto& rows) { rows.Accumulate(tickets[column], gradient, group.rows()); });
  });
  token = group.NewToken();
}
