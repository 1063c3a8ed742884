// SPDX-License-Identifier: Apache-2.0
//
// Operators: the optimizer step of all dense parameters of an optimizer, and the squared norm of
// the dense gradients. The parameters and their states are inputs, and the step updates these
// inputs in place.
#include "dense/dense_step.h"
#include "ops/operator.h"

namespace msrec {
namespace {

void Require(bool fine, const std::string& what) {
  if (!fine) throw std::invalid_argument("dense optimizer step: " + what);
}

float* Floats(const Args& args, int i, const char* what) {
  Require(args.IsType(i, "float32"), std::string(what) + " must be float32, got " + args.dtypes[i]);
  return args.Data<float>(i, what, args.Size(i));
}

float Number(const Args& args, int i, const char* what) {
  Require(args.Size(i) == 1, std::string(what) + " must be one number, got " + args.ShapeText(i));
  return *Floats(args, i, what);
}

void RequireShape(const Args& args, int parameter, int i, bool gradient) {
  const bool same = args.ndims[parameter] == args.ndims[i] && args.Leads(parameter, i);
  Require(same || (args.Size(parameter) == 1 && args.Size(i) == 1),
          (gradient ? "the gradient" : "a state") + std::string(" of a parameter of shape ") +
              args.ShapeText(parameter) + " must have its shape, got " + args.ShapeText(i));
}

// The int64 input that describes the other inputs:
//   [0] rule  [1] 1 for Nesterov's momentum  [2] 1 for centered  [3] number of parameters
//   [4] number of rates and decays, then for each parameter the index of its rate and of its decay
//   among these (-1: no decay)
class Plan {
 public:
  Plan(const Args& args, int i) : numbers_(args.DataAtLeast<int64_t>(i, "the plan", kHead)) {
    bool fits = numbers_[3] >= 0 && numbers_[3] < args.n && numbers_[4] >= 0 &&
                numbers_[4] < args.n &&
                args.Size(i) == kHead + 2 * static_cast<size_t>(numbers_[3]);
    for (int j = 0; fits && j < parameters(); ++j) {
      const int64_t* indices = numbers_ + kHead + 2 * j;
      fits = indices[0] >= 0 && indices[0] < numbers_[4] && indices[1] < numbers_[4];
    }
    Require(fits, "the plan does not fit");
  }
  RuleKind kind() const { return static_cast<RuleKind>(numbers_[0]); }
  bool nesterov() const { return numbers_[1] != 0; }
  bool centered() const { return numbers_[2] != 0; }
  int parameters() const { return static_cast<int>(numbers_[3]); }
  int scalars() const { return static_cast<int>(numbers_[4]); }
  int rate(int j) const { return static_cast<int>(numbers_[kHead + 2 * j]); }
  int decay(int j) const { return static_cast<int>(numbers_[kHead + 2 * j + 1]); }

 private:
  static constexpr size_t kHead = 5;
  const int64_t* numbers_;
};

// Reads the float32 input with the constants of an optimizer's rule; `train/optim/dense_step.py`
// writes these constants in the same order.
Rule ReadRule(const Args& args, int i, const Plan& plan) {
  const float* constants = Floats(args, i, "the constants");
  Require(args.Size(i) == 8, "the constants do not fit");
  Rule rule;
  rule.kind = plan.kind();
  rule.nesterov = plan.nesterov();
  rule.centered = plan.centered();
  float* const fields[] = {&rule.beta1, &rule.beta2, &rule.epsilon, &rule.momentum,
                           &rule.decay, &rule.l1,    &rule.l2,      &rule.lr_power};
  for (float* field : fields) *field = *constants++;
  return rule;
}

}  // namespace
}  // namespace msrec

using msrec::DenseParameter;
using msrec::Floats;
using msrec::FloatSpan;
using msrec::Number;
using msrec::Plan;
using msrec::Require;
using msrec::RequireShape;
using msrec::Rule;
using msrec::Shape;
using msrec::ThreadPool;

// (plan, constants, scale [1], step int32 [1], rates and decays [1] ..., then for each parameter:
//  itself, gradient, states ...) -> 0
MSREC_EXPORT Shape MsrDenseStepInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrDenseStep) {
  args.RequireAtLeast(5);
  const Plan plan(args, 0);
  const Rule rule = ReadRule(args, 1, plan);
  msrec::StepInput input;
  input.grad_scale = Number(args, 2, "the gradient scale");
  Require(args.IsType(3, "int32"), std::string("step must be int32, got ") + args.dtypes[3]);
  input.step = args.Number<int32_t>(3, "step");
  const int states = msrec::DenseStates(rule);
  const int scalars = 4;
  int at = scalars + plan.scalars();
  Require(args.n == at + plan.parameters() * (2 + states) + 1, "the number of inputs does not fit");
  auto& token = args.Number<float>(args.n - 1, "the token");
  std::vector<DenseParameter> parameters(plan.parameters());
  for (int j = 0; j < plan.parameters(); ++j) {
    DenseParameter& p = parameters[j];
    p.input = input;
    p.input.learning_rate = Number(args, scalars + plan.rate(j), "the learning rate");
    if (plan.decay(j) >= 0) {
      p.input.weight_decay = Number(args, scalars + plan.decay(j), "the weight decay");
    }
    p.n = args.Size(at);
    p.w = Floats(args, at, "a parameter");
    for (int k = 0; k < 1 + states; ++k) RequireShape(args, at, at + 1 + k, k == 0);
    p.g = Floats(args, at + 1, "a gradient");
    for (int k = 0; k < states; ++k) p.states[k] = Floats(args, at + 2 + k, "a state");
    at += 2 + states;
  }
  msrec::StepDense(msrec::ActiveKernels(), rule, std::move(parameters), &ThreadPool::Global());
  token = 0.0f;
}

// (scale [1], gradients ...) -> sum of the squares of the scaled gradients
MSREC_EXPORT Shape MsrDenseGradNormInferShape(int*, int64_t**, void*) { return {1}; }
MSREC_OP(MsrDenseGradNorm) {
  args.RequireAtLeast(2);
  const double scale = Number(args, 0, "the gradient scale");
  auto& norm = args.Number<float>(args.n - 1, "the output");
  std::vector<FloatSpan> gradients;
  for (int i = 1; i < args.n - 1; ++i) {
    gradients.push_back({Floats(args, i, "a gradient"), args.Size(i)});
  }
  const double squares =
      msrec::SumOfSquares(msrec::ActiveKernels(), gradients, &ThreadPool::Global());
  norm = static_cast<float>(squares * scale * scale);
}
