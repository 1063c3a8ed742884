// SPDX-License-Identifier: Apache-2.0
//
// Operators that run the optimizer step on the host, or on the device for rows in a device cache.
#include "ops/operator.h"

namespace msrec {
namespace {

// Reads inputs 2 to 6 of a step operator.
StepInput ReadStep(const Args& args, const Call& table) {
  StepInput input;
  for (int i = 2; i < 5; ++i) table.RequireFloat(args, i, "a number of the optimizer step");
  input.learning_rate = args.Number<float>(2, "the learning rate");
  input.weight_decay = args.Number<float>(3, "the weight decay");
  input.grad_scale = args.Number<float>(4, "the gradient scale");
  input.step = args.Number<int32_t>(5, "step");
  input.binding = args.Number<int64_t>(6, "the binding");
  return input;
}

}  // namespace
}  // namespace msrec

using msrec::Call;
using msrec::OpKind;
using msrec::ReadStep;
using msrec::Shape;

// (token, descriptor) -> sum of squares of the table's accumulated gradients
MSREC_EXPORT Shape MsrGradNormInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrGradNorm) {
  args.RequireCount(3);
  Call table(args, 1, OpKind::kStep);
  auto& squares = args.Number<float>(2, "the output");
  squares =
      static_cast<float>(table.ByExchange([](auto& rows) { return rows.GradientSquaredNorm(); }));
}

// (token, descriptor, learning rate [1], weight decay [1], gradient scale [1], step int32 [1],
//  binding int64 [1]) -> 0
MSREC_EXPORT Shape MsrStepInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrStep) {
  args.RequireCount(8);
  Call table(args, 1, OpKind::kStep);
  const msrec::StepInput input = ReadStep(args, table);
  auto& token = args.Number<float>(7, "the token");
  table.RequireTokens(args, 0);
  table.ByExchange([&](auto& rows) { rows.Step(input); });
  token = 0.0f;
}

// (the inputs of MsrStep) -> adam_lr and adam_eps (rows/step_constants.h), float32 [2]
MSREC_EXPORT Shape MsrBeginDeviceStepInferShape(int*, int64_t**, void*) { return {2}; }
MSREC_OP(MsrBeginDeviceStep) {
  args.RequireCount(8);
  Call table(args, 1, OpKind::kStep);
  float* out = args.Data<float>(7, "the output", 2);
  table.RequireTokens(args, 0);
  const auto numbers = table->device().BeginStep(ReadStep(args, table));
  std::copy(numbers.begin(), numbers.end(), out);
}

// (token, descriptor) -> 0: the rows have been updated in the graph
MSREC_EXPORT Shape MsrFinishDeviceStepInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrFinishDeviceStep) {
  args.RequireCount(3);
  Call table(args, 1, OpKind::kStep);
  auto& token = args.Number<float>(2, "the token");
  table->device().FinishStep();
  token = 0.0f;
}
