// SPDX-License-Identifier: Apache-2.0
//
// Operators that exchange data between workers in a step. A graph contains these operators only if
// there are several workers.
#include <cmath>

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

// Reads the names in a uint8 tensor; a newline follows each name.
std::vector<std::string> ReadNames(const Args& args, int i) {
  std::vector<std::string> names(1);
  const size_t size = args.Size(i);
  const auto* text = args.Data<uint8_t>(i, "names", size);
  for (size_t at = 0; at < size; ++at) {
    const char c = static_cast<char>(text[at]);
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

using msrec::LookupDescriptor;
using msrec::Shape;

// (descriptors [tables, 7], narrow int64 [tables], any token, the tables' tokens ...) -> token, 0
MSREC_EXPORT Shape MsrExchangeGradientsInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrExchangeGradients) {
  args.RequireAtLeast(4);
  const auto count = static_cast<size_t>(msrec::Dimension(args.ndims, args.shapes, 0));
  const auto* descriptors = args.Data<int64_t>(0, "descriptors", count * LookupDescriptor::kSize);
  const auto* narrow_of = args.Data<int64_t>(1, "narrow", count);
  auto& token = args.Number<float>(args.n - 1, "the token");
  args.RequireCount(static_cast<int64_t>(count) + 4);
  std::vector<std::shared_ptr<msrec::Registered>> held;
  std::vector<msrec::ShardedTable*> tables;
  std::vector<bool> narrow;
  for (size_t t = 0; t < count; ++t) {
    const LookupDescriptor descriptor(descriptors + t * LookupDescriptor::kSize);
    held.push_back(msrec::FindTable(descriptor.table_id()));
    if (held.back()->over_workers == nullptr) {
      throw std::runtime_error("table '" + held.back()->table->config().name +
                               "': is of this worker alone");
    }
    tables.push_back(held.back()->over_workers.get());
    narrow.push_back(narrow_of[t] != 0);
  }
  msrec::ExchangeGradients(tables, narrow, [&] {
    for (size_t t = 0; t < count; ++t) {
      const int at = 3 + static_cast<int>(t);
      const bool one = args.IsType(at, "float32") && args.Size(at) == 1;
      tables[t]->table().RequireTokens(one ? args.Number<float>(at, "the token") : NAN, true);
    }
  });
  token = 0.0f;
}

// (token, gradients ...) -> (token, the gradients averaged over the workers ...); Python infers the
// shapes
MSREC_OP(MsrAverageGradients) {
  const int outputs = args.n / 2;
  args.RequireCount(2 * std::max(outputs, 1));
  auto& token = args.Number<float>(outputs, "the token");
  std::vector<const float*> gradients;
  std::vector<msrec::SummedSpan> sums;
  for (int i = 1; i < outputs; ++i) {
    const size_t size = args.Size(i);
    if (!args.IsType(i, "float32") || args.Size(outputs + i) != size) {
      throw std::invalid_argument(
          "gradients to average must be float32 and have the shapes of "
          "their parameters, got " +
          std::string(args.dtypes[i]) + " " + args.ShapeText(i));
    }
    gradients.push_back(args.Data<float>(i, "a gradient", size));
    sums.push_back({args.Data<float>(outputs + i, "an output of gradients", size), size});
  }
  msrec::AverageOverWorkers(msrec::RequireExchange(), gradients, sums);
  token = 0.0f;
}

// (token, step int32 [1], every int32 [1], names uint8, parameters ...) -> token. The operator
// compares the parameters of all workers if the step's number is a multiple of `every`.
MSREC_EXPORT Shape MsrCompareParametersInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrCompareParameters) {
  args.RequireAtLeast(5);
  auto& token = args.Number<float>(args.n - 1, "the token");
  const int32_t step = args.Number<int32_t>(1, "step");
  const int32_t every = args.Number<int32_t>(2, "every");
  if (every < 1)
    throw std::invalid_argument("every must be at least 1, got " + std::to_string(every));
  token = 0.0f;
  if (step % every != 0) return;
  std::vector<msrec::ByteSpan> spans;
  for (int i = 4; i < args.n - 1; ++i) {
    spans.push_back({args.params[i], args.Size(i) * args.Width(i)});
  }
  msrec::CheckSameOverWorkers(msrec::RequireExchange(), spans, msrec::ReadNames(args, 3));
}
