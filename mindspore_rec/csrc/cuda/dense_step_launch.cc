// SPDX-License-Identifier: Apache-2.0
#include "cuda/dense_step_launch.h"

#include "cuda/kernel_arguments.h"

namespace msrec {
namespace kernel_loops {
namespace {

// Null: the rule changes nothing.
const char* StepKernel(RuleKind kind) {
  switch (kind) {
    case RuleKind::kNone:
      break;
    case RuleKind::kSgd:
      return "StepSgd";
    case RuleKind::kMomentum:
      return "StepMomentum";
    case RuleKind::kAdagrad:
    case RuleKind::kRowWiseAdagrad:
      return "StepAdagrad";
    case RuleKind::kAdam:
    case RuleKind::kAdamW:
      return "StepAdam";
    case RuleKind::kFtrl:
      return "StepFtrl";
    case RuleKind::kRmsProp:
      return "StepRmsProp";
  }
  return nullptr;
}

kernels::StepArguments StepArgumentsOf(const Rule& rule, const StepConstants& constants) {
  const StepInput& in = constants.in;
  const bool decoupled = rule.kind == RuleKind::kAdamW;
  kernels::StepArguments a = {};
  a.decays = in.weight_decay != 0.0f;
  a.nesterov = rule.nesterov;
  a.centered = rule.centered;
  a.learning_rate = in.learning_rate;
  a.weight_decay = in.weight_decay;
  a.grad_scale = in.grad_scale;
  a.momentum = rule.momentum;
  a.beta1 = rule.beta1;
  a.beta2 = rule.beta2;
  a.epsilon = rule.epsilon;
  a.decay = rule.decay;
  a.l1 = rule.l1;
  a.lr_power = rule.lr_power;
  a.adam_rate = constants.adam_lr;
  a.adam_epsilon = constants.adam_eps;
  a.adam_shrink = decoupled ? in.learning_rate * in.weight_decay : 0.0f;
  a.adam_coupled = decoupled ? 0.0f : in.weight_decay;
  a.ftrl_l2x2 = constants.ftrl_l2x2;
  return a;
}

}  // namespace
}  // namespace kernel_loops

void LaunchDenseStep(KernelDevice* device, const Rule& rule, const StepConstants& constants,
                     size_t n, float* w, float* const states[3], const float* g) {
  const char* kernel = kernel_loops::StepKernel(rule.kind);
  if (kernel == nullptr) return;
  kernels::StepArguments arguments = kernel_loops::StepArgumentsOf(rule, constants);
  arguments.w = w;
  for (int k = 0; k < 3; ++k) arguments.states[k] = states[k];
  arguments.gradient = g;
  device->Launch(kernel, static_cast<int64_t>(n), arguments);
}

}  // namespace msrec
