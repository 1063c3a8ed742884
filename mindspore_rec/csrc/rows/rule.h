// SPDX-License-Identifier: Apache-2.0
//
// Rule: the optimizer of a table and the constants of the optimizer. StepInput: the inputs of one
// step. The formulas are in kernels.inl.
#pragma once

#include <cstdint>
#include <string>

namespace msrec {

enum class RuleKind : int32_t {
  kNone = 0,
  kSgd,
  kMomentum,
  kAdagrad,
  kRowWiseAdagrad,
  kAdam,
  kAdamW,
  kFtrl,
  kRmsProp,
};

// Constants of all rules; each rule reads only the constants that its formulas need.
struct Rule {
  RuleKind kind = RuleKind::kNone;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float momentum = 0.0f;
  float decay = 0.9f;
  float l1 = 0.0f;
  float l2 = 0.0f;
  float lr_power = -0.5f;
  float initial_accumulator = 0.0f;
  bool nesterov = false;
  bool centered = false;

  // Returns the number of floats in the optimizer state of a row with `dim` floats.
  int32_t StateWidth(int32_t dim) const;
  // Returns how many floats of a row's state are initialized to initial_accumulator. These floats
  // are at the beginning of the state; the later floats are initialized to 0.
  int32_t FirstAccumulators(int32_t dim) const;
  // Returns true if the state contains a sum of squares that only grows, and false if the state has
  // only moving averages or decaying sums. With few bits of precision, small additions to a large
  // sum would be rounded away.
  bool KeepsSums() const;
};

// Parses "sgd", "momentum", "adagrad", "row_wise_adagrad", "adam", "adamw", "ftrl" or "rmsprop".
// Throws std::invalid_argument for any other name.
RuleKind ParseRuleKind(const std::string& name);

// The inputs of one step.
struct StepInput {
  float learning_rate = 0.0f;
  float weight_decay = 0.0f;
  // Factor by which every gradient is multiplied first: 1 / loss scale, times the clip factor.
  float grad_scale = 1.0f;
  int64_t step = 1;  // 1 for the first step
  // The number that Table::BindOptimizer has returned to the optimizer. If `binding` is 0, the step
  // does not check which optimizer is bound to the table.
  int64_t binding = 0;
};

}  // namespace msrec
