// SPDX-License-Identifier: Apache-2.0
#include "rows/rule.h"

#include <stdexcept>

namespace msrec {

int32_t Rule::StateWidth(int32_t dim) const {
  switch (kind) {
    case RuleKind::kNone:
    case RuleKind::kSgd:
      return 0;
    case RuleKind::kMomentum:
    case RuleKind::kAdagrad:
      return dim;
    case RuleKind::kRowWiseAdagrad:
      return 1;
    case RuleKind::kAdam:
    case RuleKind::kAdamW:
    case RuleKind::kFtrl:
      return 2 * dim;
    case RuleKind::kRmsProp:
      return (centered ? 3 : 2) * dim;
  }
  return 0;
}

int32_t Rule::FirstAccumulators(int32_t dim) const {
  if (kind == RuleKind::kRowWiseAdagrad) return 1;
  const bool accumulates =
      kind == RuleKind::kAdagrad || kind == RuleKind::kFtrl || kind == RuleKind::kRmsProp;
  return accumulates ? dim : 0;
}

bool Rule::KeepsSums() const {
  return kind == RuleKind::kAdagrad || kind == RuleKind::kRowWiseAdagrad || kind == RuleKind::kFtrl;
}

RuleKind ParseRuleKind(const std::string& name) {
  if (name == "sgd") return RuleKind::kSgd;
  if (name == "momentum") return RuleKind::kMomentum;
  if (name == "adagrad") return RuleKind::kAdagrad;
  if (name == "row_wise_adagrad") return RuleKind::kRowWiseAdagrad;
  if (name == "adam") return RuleKind::kAdam;
  if (name == "adamw") return RuleKind::kAdamW;
  if (name == "ftrl") return RuleKind::kFtrl;
  if (name == "rmsprop") return RuleKind::kRmsProp;
  throw std::invalid_argument(
      "optimizer rule '" + name +
      "' is unknown; legal: sgd, momentum, adagrad, row_wise_adagrad, adam, "
      "adamw, ftrl, rmsprop");
}

}  // namespace msrec
