// SPDX-License-Identifier: Apache-2.0
//
// Operators: exchanges of a step between workers. Only in the graphs of more than one worker.
#include "ops/operator.h"
#include "workers/dense_average.h"
#include "workers/made_tables.h"

namespace msrec {
namespace {

TableExchange* RequireExchange() {
  TableExchange* exchange = TheExchange();
  if (exchange == nullptr) throw std::runtime_error("there is only one worker to exchange with");
  return exchange;
}

// The names in a uint8 tensor, each followed by a newline.
std::vector<std::string> ReadNames(const Args& args, int i) {
  std::vector<std::string> names(1);
  for (size_t at = 0; at < args.Size(i); ++at) {
    const char c = args.Data<char>(i)[at];
    if (c == '\n') {
      names.emplace_back();
    } else {
      names.back() += c;
    }
  }
  names.pop_back();
  return names;
}

}  // namespace
}  // namespace msrec

using msrec::Args;
using msrec::Call;
using msrec::LookupDescriptor;
using msrec::OpKind;
using msrec::Shape;

// (descriptors [tables, 7], narrow int64 [tables], tokens ...) -> token
MSREC_EXPORT Shape MsrExchangeGradientsInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP_N(MsrExchangeGradients) {
  const Args args{params, ndims, shapes, dtypes};
  std::vector<std::shared_ptr<msrec::Registered>> held;
  std::vector<msrec::ShardedTable*> tables;
  std::vector<bool> narrow;
  for (int64_t t = 0; t < shapes[0][0]; ++t) {
    const LookupDescriptor descriptor(args.Data<int64_t>(0) + t * LookupDescriptor::kSize);
    held.push_back(msrec::FindTable(descriptor.table_id()));
    if (held.back()->over_workers == nullptr) {
      throw std::runtime_error("table '" + held.back()->table->config().name +
                               "': is of this worker alone");
    }
    tables.push_back(held.back()->over_workers.get());
    narrow.push_back(args.Data<int64_t>(1)[t] != 0);
  }
  msrec::ExchangeGradients(tables, narrow);
  *args.Data<float>(n - 1) = 0.0f;
  return 0;
}

// (token, gradients ...) -> (token, the same averaged over workers ...); shapes are given in Python
MSREC_OP_N(MsrAverageGradients) {
  const Args args{params, ndims, shapes, dtypes};
  const int outputs = n / 2;
  std::vector<const float*> gradients;
  std::vector<msrec::FloatSpan> sums;
  for (int i = 1; i < outputs; ++i) {
    const size_t size = args.Size(i);
    if (!args.IsType(i, "float32") || args.Size(outputs + i) != size) {
      throw std::invalid_argument(
          "gradients to average must be float32 and have the shapes of "
          "their parameters, got " +
          std::string(dtypes[i]) + " " + args.ShapeText(i));
    }
    gradients.push_back(args.Data<float>(i));
    sums.push_back({args.Data<float>(outputs + i), size});
  }
  msrec::AverageOverWorkers(msrec::RequireExchange(), gradients, sums);
  *args.Data<float>(outputs) = 0.0f;
  return 0;
}

// (token, step int32 [1], every int32 [1], names uint8, parameters ...) -> token. Compares the
// parameters of all workers in steps that are multiples of `every`.
MSREC_EXPORT Shape MsrCompareParametersInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP_N(MsrCompareParameters) {
  const Args args{params, ndims, shapes, dtypes};
  *args.Data<float>(n - 1) = 0.0f;
  if (*args.Data<int32_t>(1) % *args.Data<int32_t>(2) != 0) return 0;
  std::vector<msrec::ByteSpan> spans;
  for (int i = 4; i < n - 1; ++i) {
    const size_t width = args.IsType(i, "float32") ? 4 : args.IsType(i, "float64") ? 8 : 2;
    spans.push_back({params[i], args.Size(i) * width});
  }
  msrec::CheckSameOverWorkers(msrec::RequireExchange(), spans, msrec::ReadNames(args, 3));
  return 0;
}
