// SPDX-License-Identifier: Apache-2.0
//
// Rules of optimizers to test kernels with.
#pragma once

#include <vector>

#include "rows/rule.h"

namespace msrec {

constexpr RuleKind kEveryRuleKind[] = {
    RuleKind::kSgd,  RuleKind::kMomentum, RuleKind::kAdagrad, RuleKind::kRowWiseAdagrad,
    RuleKind::kAdam, RuleKind::kAdamW,    RuleKind::kFtrl,    RuleKind::kRmsProp};

// Returns each kind of rule twice, with different variants of its constants.
inline std::vector<Rule> EveryRule() {
  std::vector<Rule> rules;
  for (const RuleKind kind : kEveryRuleKind) {
    for (const bool variant : {false, true}) {
      Rule rule;
      rule.kind = kind;
      rule.momentum = 0.9f;
      rule.nesterov = variant;
      rule.centered = variant;
      rule.l1 = 0.02f;
      rule.l2 = 0.03f;
      rule.lr_power = variant ? -0.6f : -0.5f;
      rule.initial_accumulator = 0.1f;
      rule.epsilon = 1e-6f;
      rules.push_back(rule);
    }
  }
  return rules;
}

}  // namespace msrec
