// SPDX-License-Identifier: Apache-2.0
//
// The operators MindSpore calls: ahead-of-time Custom operators. Each Msr<Name> comes with an
// Msr<Name>InferShape, which makes it work with dynamic shapes too. MindSpore turns an exception
// into a Python RuntimeError with its message.
//
// Every operator names its table by a `handle`, an int64 tensor:
//   [0] table id  [1] 1 if there is a padding key  [2] padding key  [3] combiner  [4] 1 if weighted
//   [5] 1 if keys are int32: int64 ids are then an error, since they might not fit
//   [6] what an occurrence counts for
// `like` is a constant of shape [dim]: shape inference sees shapes only, and takes the dim from it.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "table/registry.h"
#include "util/thread_pool.h"

namespace msrec {
namespace {

using Shape = std::vector<int64_t>;

constexpr size_t kHandleSize = 7;

struct Args {
  void** params;
  int* ndims;
  int64_t** shapes;
  const char** dtypes;

  size_t Size(int i) const {
    size_t n = 1;
    for (int d = 0; d < ndims[i]; ++d) n *= static_cast<size_t>(shapes[i][d]);
    return n;
  }
  template <typename T>
  T* Data(int i) const {
    return static_cast<T*>(params[i]);
  }
  bool IsType(int i, const char* dtype) const { return std::strcmp(dtypes[i], dtype) == 0; }
  // Whether the first dimensions of j are those of i.
  bool Leads(int i, int j) const {
    return ndims[i] <= ndims[j] && std::equal(shapes[i], shapes[i] + ndims[i], shapes[j]);
  }
  std::string ShapeText(int i) const {
    std::string text = "[";
    for (int d = 0; d < ndims[i]; ++d) {
      text += (d == 0 ? "" : ", ") + std::to_string(shapes[i][d]);
    }
    return text + "]";
  }
};

// Looks the table up, checks what the operator was given for it, and times the operator's work.
class Call {
 public:
  Call(const Args& args, int handle, OpKind kind) : Call(args.Data<int64_t>(handle), kind) {}
  Call(const int64_t* handle, OpKind kind)
      : handle_(handle),
        registered_(FindTable(handle_[0])),
        kind_(static_cast<int>(kind)),
        start_(std::chrono::steady_clock::now()) {
    if (kind == OpKind::kLookup) RequireRows();
  }
  ~Call() {
    if (kind_ == static_cast<int>(OpKind::kCount)) return;  // looked up only to be checked
    const auto spent = std::chrono::steady_clock::now() - start_;
    registered_->times.calls[kind_] += 1;
    registered_->times.nanoseconds[kind_] +=
        std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count();
  }

  Table* operator->() { return registered_->table.get(); }
  IdFilter filter() const {
    IdFilter filter;
    filter.has_padding = handle_[1] != 0;
    filter.padding_key = handle_[2];
    filter.coefficient = static_cast<uint32_t>(handle_[6]);
    return filter;
  }
  const int64_t* handle() const { return handle_; }
  std::string Where(const std::string& what) const {
    return "table '" + registered_->table->config().name + "': " + what;
  }
  void Require(bool fine, const std::string& what) const {
    if (!fine) throw std::invalid_argument(Where(what));
  }
  // Throws where rows that are not those of the loaded weights would be read.
  void RequireRows() const {
    if (registered_->rows_missing.load(std::memory_order_relaxed)) {
      throw std::runtime_error(Where(
          "its rows were not in the checkpoint that was loaded: mindspore.save_checkpoint and "
          "ModelCheckpoint write no tables. Save with mindspore_rec.save_checkpoint or "
          "RecCheckpoint and load with mindspore_rec.load_checkpoint; keep_rows() of the table "
          "goes on with the rows that it has now"));
    }
  }
  IdView Integers(const Args& args, int i, const std::string& argument) const {
    const bool is_int64 = args.IsType(i, "int64");
    Require(is_int64 || args.IsType(i, "int32"),
            argument + " must be int32 or int64, got " + args.dtypes[i]);
    return {args.params[i], args.Size(i), is_int64};
  }
  IdView Ids(const Args& args, int i, const std::string& argument) const {
    const IdView ids = Integers(args, i, argument);
    Require(!ids.is_int64 || handle_[5] == 0,
            argument +
                " must be int32, the table's key_dtype, got int64: make the table with "
                "key_dtype=ms.int64");
    return ids;
  }
  void RequireFloat(const Args& args, int i, const std::string& argument) const {
    Require(args.IsType(i, "float32"), argument + " must be float32, got " + args.dtypes[i]);
  }

 private:
  const int64_t* handle_;
  std::shared_ptr<Registered> registered_;
  int kind_;
  std::chrono::steady_clock::time_point start_;
};

Shape Rows(const int* ndims, int64_t* const* shapes, int ids, int like) {
  Shape shape(shapes[ids], shapes[ids] + ndims[ids]);
  shape.push_back(shapes[like][0]);
  return shape;
}

// Bags of a pooled lookup: rows of a 2-D ids tensor, or an offsets tensor over a 1-D one.
struct Bags {
  std::vector<int64_t> rows;
  BagView view;

  Bags(const Args& args, int ids, int offsets, int weights, const Call& table) {
    const int64_t* handle = table.handle();
    if (args.ndims[ids] == 2) {
      const int64_t n = args.shapes[ids][0];
      for (int64_t b = 0; b < n; ++b) rows.push_back(b * args.shapes[ids][1]);
      view.offsets = {rows.data(), rows.size(), true};
    } else {
      view.offsets = table.Integers(args, offsets, "offsets");
    }
    view.combiner = static_cast<Combiner>(handle[3]);
    if (handle[4] == 0) return;
    table.RequireFloat(args, weights, "per_sample_weights");
    table.Require(args.ndims[weights] == args.ndims[ids] && args.Leads(ids, weights),
                  "per_sample_weights must have the shape of ids, " + args.ShapeText(ids) +
                      ", got " + args.ShapeText(weights));
    view.weights = args.Data<float>(weights);
  }
};

// Several tables in one operator: column t of a tensor belongs to table t.
class Group {
 public:
  // The columns are the last dimension of `tensor`, or the one before where `inner` is 1.
  Group(const Args& args, int tensor, int handles, int inner = 0)
      : args_(args), tensor_(tensor), handles_(args.Data<int64_t>(handles)) {
    columns_ = static_cast<size_t>(args.shapes[handles][0]);
    const int at = args.ndims[tensor] - 1 - inner;
    if (at < 0 || static_cast<size_t>(args.shapes[tensor][at]) != columns_) {
      throw std::invalid_argument("ids must be [..., " + std::to_string(columns_) +
                                  "], one column a table, got " + args.ShapeText(tensor));
    }
    for (int d = 0; d < at; ++d) rows_ *= static_cast<size_t>(args.shapes[tensor][d]);
    for (size_t column = 0; column < columns_; ++column) {
      const auto found = std::find_if(tasks_.begin(), tasks_.end(), [&](const auto& task) {
        return Handle(task[0])[0] == Handle(column)[0];
      });
      if (found == tasks_.end()) {
        tasks_.push_back({column});
      } else {
        found->push_back(column);
      }
    }
  }

  size_t rows() const { return rows_; }
  // Throws what a lookup of one of the tables would throw for what it was given, before a lookup of
  // another has inserted rows.
  void CheckLookups(bool train) const {
    for (const auto& task : tasks_) {
      for (const size_t column : task) {
        Call table(Handle(column), OpKind::kCount);
        table->CheckLookup(Ids(table, column), table.filter(), train);
      }
    }
  }
  // In parallel over tables; columns of one table one after another, so that no result depends on
  // the number of threads.
  template <typename Fn>
  void ForEach(OpKind kind, Fn fn) const {
    ThreadPool::Global().ParallelFor(static_cast<int64_t>(tasks_.size()), [&](int64_t task) {
      for (const size_t column : tasks_[task]) {
        Call table(Handle(column), kind);
        fn(table, column);
      }
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
  const int64_t* Handle(size_t column) const { return handles_ + column * kHandleSize; }

  const Args& args_;
  const int tensor_;
  const int64_t* handles_;
  size_t columns_ = 0;
  size_t rows_ = 1;
  std::vector<std::vector<size_t>> tasks_;  // columns of one table
};

// Inputs 2 to 6 of a step.
StepInput ReadStep(const Args& args, const Call& table) {
  StepInput input;
  for (int i = 2; i < 5; ++i) table.RequireFloat(args, i, "a number of the optimizer step");
  input.learning_rate = *args.Data<float>(2);
  input.weight_decay = *args.Data<float>(3);
  input.grad_scale = *args.Data<float>(4);
  input.step = *args.Data<int32_t>(5);
  input.binding = *args.Data<int64_t>(6);
  return input;
}

Shape Pooled(const int* ndims, int64_t* const* shapes) {
  return {ndims[0] == 2 ? shapes[0][0] : shapes[1][0], shapes[4][0]};
}

}  // namespace
}  // namespace msrec

using msrec::Args;
using msrec::Bags;
using msrec::Call;
using msrec::Group;
using msrec::OpKind;
using msrec::ReadStep;
using msrec::Shape;

// The library hides its symbols; MindSpore finds the operators by name.
#define MSREC_EXPORT extern "C" __attribute__((visibility("default")))

#define MSREC_OP(name)                                                                         \
  MSREC_EXPORT int name(int, void** params, int* ndims, int64_t** shapes, const char** dtypes, \
                        void*, void*)

// (ids, handle, like, anchor) -> (rows, ticket)
MSREC_EXPORT std::vector<Shape> MsrLookupTrainInferShape(int* ndims, int64_t** shapes, void*) {
  return {msrec::Rows(ndims, shapes, 0, 2), {1}};
}
MSREC_OP(MsrLookupTrain) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kLookup);
  *args.Data<int64_t>(5) =
      table->LookupTrain(table.Ids(args, 0, "ids"), table.filter(), args.Data<float>(4));
  return 0;
}

// (ids, handle, like, anchor) -> rows
MSREC_EXPORT Shape MsrLookupEvalInferShape(int* ndims, int64_t** shapes, void*) {
  return msrec::Rows(ndims, shapes, 0, 2);
}
MSREC_OP(MsrLookupEval) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kLookup);
  table->LookupEval(table.Ids(args, 0, "ids"), table.filter(), args.Data<float>(4));
  return 0;
}

// (keys, handle, like) -> rows: MapParameter.get without inserting, never trained
MSREC_EXPORT Shape MsrFindInferShape(int* ndims, int64_t** shapes, void*) {
  return msrec::Rows(ndims, shapes, 0, 2);
}
MSREC_OP(MsrFind) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kMap);
  table.RequireRows();
  table->LookupEval(table.Ids(args, 0, "key"), table.filter(), args.Data<float>(3));
  return 0;
}

// (gradient, handle) -> never: runs where somebody asks for the gradient of a lookup in evaluation
// mode, which would leave the table silently untrained.
MSREC_EXPORT Shape MsrRefuseGradientInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrRefuseGradient) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kAccumulate);
  throw std::runtime_error(
      "table '" + table->config().name +
      "': got a gradient for a lookup in evaluation mode, so it would never learn; call "
      "set_train() "
      "on the outermost cell before training, or freeze the table with requires_grad=False");
}

// (ids, handle, like, anchor) -> (rows, ticket): what MapParameter.get does. It inserts whether or
// not there is an optimizer, and is trained where there is one.
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
    ticket = table->LookupTrain(keys, table.filter(), args.Data<float>(4));
  } else {
    table->Get(keys, table.filter(), true, args.Data<float>(4));
  }
  *args.Data<int64_t>(5) = ticket;
  return 0;
}

// (ids, offsets, weights, handle, like, anchor) -> (out, ticket)
MSREC_EXPORT std::vector<Shape> MsrPoolTrainInferShape(int* ndims, int64_t** shapes, void*) {
  return {msrec::Pooled(ndims, shapes), {1}};
}
MSREC_OP(MsrPoolTrain) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 3, OpKind::kLookup);
  const Bags bags(args, 0, 1, 2, table);
  *args.Data<int64_t>(7) =
      table->PoolTrain(table.Ids(args, 0, "ids"), table.filter(), bags.view, args.Data<float>(6));
  return 0;
}

// (ids, offsets, weights, handle, like, anchor) -> out
MSREC_EXPORT Shape MsrPoolEvalInferShape(int* ndims, int64_t** shapes, void*) {
  return msrec::Pooled(ndims, shapes);
}
MSREC_OP(MsrPoolEval) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 3, OpKind::kLookup);
  const Bags bags(args, 0, 1, 2, table);
  table->PoolEval(table.Ids(args, 0, "ids"), table.filter(), bags.view, args.Data<float>(6));
  return 0;
}

// (ids [..., tables], handles [tables, 7], like, anchor) -> (rows [..., tables, dim], tickets)
// Column t of the ids is looked up in table t; several columns may be of one table.
MSREC_EXPORT std::vector<Shape> MsrGroupLookupTrainInferShape(int* ndims, int64_t** shapes, void*) {
  return {msrec::Rows(ndims, shapes, 0, 2), {shapes[1][0]}};
}
MSREC_OP(MsrGroupLookupTrain) {
  const Args args{params, ndims, shapes, dtypes};
  const Group group(args, 0, 1);
  int64_t* tickets = args.Data<int64_t>(5);
  group.CheckLookups(true);
  group.ForEach(OpKind::kLookup, [&](Call& table, size_t column) {
    tickets[column] = table->LookupTrain(group.Ids(table, column), table.filter(),
                                         args.Data<float>(4) + column * table->dim());
  });
  return 0;
}

// (ids [..., tables], handles [tables, 7], like, anchor) -> rows [..., tables, dim]
MSREC_EXPORT Shape MsrGroupLookupEvalInferShape(int* ndims, int64_t** shapes, void*) {
  return msrec::Rows(ndims, shapes, 0, 2);
}
MSREC_OP(MsrGroupLookupEval) {
  const Args args{params, ndims, shapes, dtypes};
  const Group group(args, 0, 1);
  group.ForEach(OpKind::kLookup, [&](Call& table, size_t column) {
    table->LookupEval(group.Ids(table, column), table.filter(),
                      args.Data<float>(4) + column * table->dim());
  });
  return 0;
}

// (grad [..., tables, dim], tickets, handles) -> token
MSREC_EXPORT Shape MsrGroupAccumulateInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrGroupAccumulate) {
  const Args args{params, ndims, shapes, dtypes};
  const Group group(args, 0, 2, 1);
  const int64_t* tickets = args.Data<int64_t>(1);
  group.ForEach(OpKind::kAccumulate, [&](Call& table, size_t column) {
    table.RequireFloat(args, 0, "gradient");
    table->Accumulate(tickets[column], args.Data<float>(0) + column * table->dim(), group.rows());
  });
  *args.Data<float>(3) = 0.0f;
  return 0;
}

// (grad, ticket, handle) -> token, always 0: the gradient of the table's anchor. Zero, so that
// clipping by global norm, or an optimizer that does not know tables, is not disturbed by it.
MSREC_EXPORT Shape MsrAccumulateInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrAccumulate) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 2, OpKind::kAccumulate);
  table.RequireFloat(args, 0, "gradient");
  const size_t dim = static_cast<size_t>(table->dim());
  const int64_t ticket = *args.Data<int64_t>(1);
  if (ticket == 0) {
    throw msrec::NoOptimizer("table '" + table->config().name +
                             "' got a gradient but no optimizer of mindspore_rec.optim covers it");
  }
  table->Accumulate(ticket, args.Data<float>(0), args.Size(0) / dim);
  *args.Data<float>(3) = 0.0f;
  return 0;
}

// (token, handle) -> sum of squares of the table's accumulated gradients
MSREC_EXPORT Shape MsrGradNormInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrGradNorm) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kStep);
  *args.Data<float>(2) = static_cast<float>(table->GradientSquaredNorm());
  return 0;
}

// (token, handle, learning rate [1], weight decay [1], gradient scale [1], step int32 [1],
//  binding int64 [1]) -> 0
MSREC_EXPORT Shape MsrStepInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrStep) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kStep);
  table->Step(ReadStep(args, table));
  *args.Data<float>(7) = 0.0f;
  return 0;
}

// ---- tables with a device cache

// (ids, handle, anchor, values of the cache) -> (slots int32 of the shape of ids, ticket)
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

// (ticket, handle) -> token: the lookup's gradient has been added in the graph
MSREC_EXPORT Shape MsrReportGradientInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrReportGradient) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kAccumulate);
  table->ReportGradient(*args.Data<int64_t>(0));
  *args.Data<float>(2) = 0.0f;
  return 0;
}

// (token, handle) -> number of slots with a gradient, at least 1: int64 [1]
MSREC_EXPORT Shape MsrCountTouchedInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrCountTouched) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kStep);
  *args.Data<int64_t>(2) = static_cast<int64_t>(std::max<size_t>(table->CountTouched(), 1));
  return 0;
}

// (any tensor with one element a slot, handle) -> slots with a gradient, int32; then the scratch
// slot
MSREC_EXPORT Shape MsrTouchedInferShape(int*, int64_t** shapes, void*) { return {shapes[0][0]}; }
MSREC_OP(MsrTouched) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kStep);
  table->Touched(args.Data<int32_t>(2), args.Size(2));
  return 0;
}

// As MsrStep -> what the formula needs beside the rule's constants, float32 [2]
MSREC_EXPORT Shape MsrBeginDeviceStepInferShape(int*, int64_t**, void*) { return {2}; }
MSREC_OP(MsrBeginDeviceStep) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kStep);
  const auto numbers = table->BeginDeviceStep(ReadStep(args, table));
  std::copy(numbers.begin(), numbers.end(), args.Data<float>(7));
  return 0;
}

// (token, handle) -> 0: the rows have been updated in the graph
MSREC_EXPORT Shape MsrFinishDeviceStepInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrFinishDeviceStep) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kStep);
  table->FinishDeviceStep();
  *args.Data<float>(2) = 0.0f;
  return 0;
}

// (keys, values, handle) -> 0
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
  table->Put(keys, args.Data<float>(1), keys.size);
  *args.Data<int32_t>(3) = 0;
  return 0;
}

// (keys, handle) -> 0
MSREC_EXPORT Shape MsrEraseInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrErase) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kMap);
  table->Erase(table.Ids(args, 0, "key"));
  *args.Data<int32_t>(2) = 0;
  return 0;
}

// (keys, handle) -> bool of the shape of keys
MSREC_EXPORT Shape MsrContainsInferShape(int* ndims, int64_t** shapes, void*) {
  return Shape(shapes[0], shapes[0] + ndims[0]);
}
MSREC_OP(MsrContains) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kMap);
  table->Contains(table.Ids(args, 0, "key"), args.Data<bool>(2));
  return 0;
}

// (handle) -> number of rows, int64 [1]
MSREC_EXPORT Shape MsrSizeInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrSize) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 0, OpKind::kMap);
  *args.Data<int64_t>(1) = static_cast<int64_t>(table->Size());
  return 0;
}

// (any tensor with one element a row, handle) -> keys int64 [rows]
MSREC_EXPORT Shape MsrKeysInferShape(int*, int64_t** shapes, void*) { return {shapes[0][0]}; }
MSREC_OP(MsrKeys) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kMap);
  const std::vector<int64_t> keys = table->Keys();
  if (keys.size() != args.Size(0))
    throw std::runtime_error("the table changed while its keys were read");
  std::memcpy(params[2], keys.data(), keys.size() * sizeof(int64_t));
  return 0;
}

// (any tensor with one element a row, handle, like) -> values [rows, dim], in the order of MsrKeys
MSREC_EXPORT Shape MsrValuesInferShape(int*, int64_t** shapes, void*) {
  return {shapes[0][0], shapes[2][0]};
}
MSREC_OP(MsrValues) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kMap);
  const msrec::ExportedRows rows = table->Export(false);
  if (rows.n != args.Size(0))
    throw std::runtime_error("the table changed while its values were read");
  std::memcpy(params[3], rows.values.get(), rows.n * rows.dim * sizeof(float));
  return 0;
}
