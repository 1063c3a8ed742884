// SPDX-License-Identifier: Apache-2.0
//
// Common parts of MindSpore's operators on tables. The operators are ahead-of-time Custom
// operators. For each operator Msr<Name>, there is a function Msr<Name>InferShape, which also
// supports dynamic shapes. The only operator without an InferShape function is MsrAverageGradients,
// whose shapes Python infers. If an operator throws, MindSpore raises a Python RuntimeError with
// the same message.
//
// Every operator identifies its table by a `descriptor`, an int64 tensor (LookupDescriptor). `like`
// is a constant of shape [dim]. Shape inference receives only shapes, and takes dim from the shape
// of `like`.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "ops/args.h"
#include "workers/all_rows.h"
#include "workers/made_tables.h"
#include "workers/registry.h"

namespace msrec {

// Names a table, its padding and its pooling to an operator: a view of an int64 tensor
//   [0] table id  [1] 1 if there is a padding key  [2] padding key  [3] combiner  [4] 1 if weighted
//   [5] 1 if keys are int32: int64 ids are then an error, since they might not fit
//   [6] weight of an occurrence in a key's count
class LookupDescriptor {
 public:
  static constexpr size_t kSize = 7;

  explicit LookupDescriptor(const int64_t* numbers) : numbers_(numbers) {}

  int64_t table_id() const { return numbers_[0]; }
  IdFilter filter() const {
    IdFilter filter;
    filter.has_padding = numbers_[1] != 0;
    filter.padding_key = numbers_[2];
    filter.coefficient = static_cast<uint32_t>(numbers_[6]);
    return filter;
  }
  Combiner combiner() const { return static_cast<Combiner>(numbers_[3]); }
  bool weighted() const { return numbers_[4] != 0; }
  bool int32_keys() const { return numbers_[5] != 0; }

 private:
  const int64_t* numbers_;
};

// Looks up the table, checks the operator's arguments, and measures the operator's time.
class Call {
 public:
  Call(const Args& args, int descriptor, OpKind kind)
      : Call(
            LookupDescriptor(args.Data<int64_t>(descriptor, "descriptor", LookupDescriptor::kSize)),
            kind) {}
  Call(LookupDescriptor descriptor, OpKind kind)
      : Call(descriptor, FindTable(descriptor.table_id()), kind) {}
  Call(LookupDescriptor descriptor, std::shared_ptr<Registered> table, OpKind kind)
      : descriptor_(descriptor),
        registered_(std::move(table)),
        kind_(static_cast<int>(kind)),
        start_(std::chrono::steady_clock::now()) {
    if (kind == OpKind::kLookup) RequireRows();
  }
  ~Call() {
    if (kind_ == static_cast<int>(OpKind::kCount)) return;  // the table is only checked, not used
    const auto spent = std::chrono::steady_clock::now() - start_;
    registered_->times.calls[kind_] += 1;
    registered_->times.nanoseconds[kind_] +=
        std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count();
  }

  Table* operator->() { return registered_->table.get(); }
  size_t dim() const { return static_cast<size_t>(registered_->table->dim()); }
  // Returns the ShardedTable, whose rows are distributed over all workers; null if there is only
  // one worker.
  ShardedTable* over_workers() const { return registered_->over_workers.get(); }
  template <typename Fn>
  auto ByExchange(const Fn& fn) const {
    return msrec::ByExchange(*registered_, fn);
  }
  template <typename Fn>
  auto ByRequests(const Fn& fn) const {
    return msrec::ByRequests(*registered_, fn);
  }
  const LookupDescriptor& descriptor() const { return descriptor_; }
  IdFilter filter() const { return descriptor_.filter(); }
  std::string Where(const std::string& what) const {
    return "table '" + registered_->table->config().name + "': " + what;
  }
  void Require(bool fine, const std::string& what) const {
    if (!fine) throw std::invalid_argument(Where(what));
  }
  // Throws if the operator would read rows that do not belong to the loaded weights.
  void RequireRows() const { CheckRowsGiven(*registered_); }
  IdView Integers(const Args& args, int i, const char* argument) const {
    const bool is_int64 = args.IsType(i, "int64");
    if (!is_int64 && !args.IsType(i, "int32")) {
      Require(false, std::string(argument) + " must be int32 or int64, got " + args.dtypes[i]);
    }
    return {args.params[i], args.Size(i), is_int64};
  }
  IdView Ids(const Args& args, int i, const char* argument) const {
    const IdView ids = Integers(args, i, argument);
    if (ids.is_int64 && descriptor_.int32_keys()) {
      Require(false, std::string(argument) +
                         " must be int32, the table's key_dtype, got int64: make the table with "
                         "key_dtype=ms.int64");
    }
    return ids;
  }
  void RequireFloat(const Args& args, int i, const char* argument) const {
    if (!args.IsType(i, "float32")) {
      Require(false, std::string(argument) + " must be float32, got " + args.dtypes[i]);
    }
  }
  // Returns a new token for a gradient that the table has accumulated.
  float NewToken() const {
    const float token = GradientTokens::Next();
    registered_->table->NoteToken(token);
    return token;
  }
  // Throws unless argument i is the sum of the tokens that the table recorded since the last
  // optimizer step.
  void RequireTokens(const Args& args, int i) const {
    const bool one = args.IsType(i, "float32") && args.Size(i) == 1;
    registered_->table->RequireTokens(one ? args.Number<float>(i, "the token") : NAN);
  }
  // Returns argument i, which must be float32 or bfloat16 with one row per id.
  RowsOut AnyRows(const Args& args, int i, const char* what, size_t ids) const {
    if (!args.IsType(i, kBfloat16)) return Rows(args, i, what, ids);
    return RowsOut::Bfloat16(args.Bfloat16Data(i, what, ids * dim()));
  }
  // Returns argument i, which must be float32 with one row per id.
  float* Rows(const Args& args, int i, const char* what, size_t ids) const {
    return args.Data<float>(i, what, ids * dim());
  }

 private:
  LookupDescriptor descriptor_;
  std::shared_ptr<Registered> registered_;
  int kind_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace msrec
