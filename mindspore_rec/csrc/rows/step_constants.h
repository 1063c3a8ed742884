// SPDX-License-Identifier: Apache-2.0
//
// StepConstants: the numbers that the loops of an optimizer step read, apart from rows and
// gradients. Only files that compute or read these constants include this header, so that few files
// are recompiled when a rule is added.
#pragma once

#include "rows/rounding.h"
#include "rows/rule.h"

namespace msrec {

// Constants of a row update, computed once per step.
struct StepConstants {
  Rule rule;
  StepInput in;
  float adam_lr;  // learning rate, corrected for both biases
  float adam_eps;
  float ftrl_l2x2;
  Rounding rounding = {};  // for rows with numbers of 2 bytes
};

// Returns the constants of a step: `rule`, `input`, and numbers that are computed from `rule` and
// `input`.
StepConstants MakeStepConstants(const Rule& rule, const StepInput& input);

}  // namespace msrec
