// SPDX-License-Identifier: Apache-2.0
//
// Operators: the optimizer step, on the host and, with a device cache out of its memory, on the
// device.
#include "ops/operator.h"

namespace msrec {
namespace {

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

}  // namespace
}  // namespace msrec

using msrec::Args;
using msrec::Call;
using msrec::OpKind;
using msrec::ReadStep;
using msrec::Shape;

// (token, descriptor) -> sum of squares of the table's accumulated gradients
MSREC_EXPORT Shape MsrGradNormInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrGradNorm) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kStep);
  *args.Data<float>(2) =
      static_cast<float>(table.ByExchange([](auto& rows) { return rows.GradientSquaredNorm(); }));
  return 0;
}

// (token, descriptor, learning rate [1], weight decay [1], gradient scale [1], step int32 [1],
//  binding int64 [1]) -> 0
MSREC_EXPORT Shape MsrStepInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrStep) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kStep);
  table.ByExchange([&](auto& rows) { rows.Step(ReadStep(args, table)); });
  *args.Data<float>(7) = 0.0f;
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

// (token, descriptor) -> 0: the rows have been updated in the graph
MSREC_EXPORT Shape MsrFinishDeviceStepInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrFinishDeviceStep) {
  const Args args{params, ndims, shapes, dtypes};
  Call table(args, 1, OpKind::kStep);
  table->FinishDeviceStep();
  *args.Data<float>(2) = 0.0f;
  return 0;
}
