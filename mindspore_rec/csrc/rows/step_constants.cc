// SPDX-License-Identifier: Apache-2.0
#include "rows/step_constants.h"

#include <algorithm>
#include <cmath>

namespace msrec {

StepConstants MakeStepConstants(const Rule& rule, const StepInput& input) {
  StepConstants c{rule, input, 0.0f, rule.epsilon, 2.0f * rule.l2};
  const double t = static_cast<double>(std::max<int64_t>(input.step, 1));
  const double correction2 = std::sqrt(1.0 - std::pow(static_cast<double>(rule.beta2), t));
  const double correction1 = 1.0 - std::pow(static_cast<double>(rule.beta1), t);
  c.adam_lr = static_cast<float>(input.learning_rate * correction2 / correction1);
  // Published AdamW corrects the bias of the second moment before it adds epsilon. MindSpore's Adam
  // corrects the bias of the second moment after it adds epsilon.
  if (rule.kind == RuleKind::kAdamW) {
    c.adam_eps = static_cast<float>(rule.epsilon * correction2);
  }
  return c;
}

}  // namespace msrec
