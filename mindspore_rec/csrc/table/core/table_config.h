// SPDX-License-Identifier: Apache-2.0
//
// TableConfig: the settings of a new table; and the exceptions of a table's calls.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "init/initializer.h"
#include "policy/admission.h"
#include "policy/eviction.h"
#include "table/core/placement.h"
#include "util/number_type.h"

namespace msrec {

struct TableClosed : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// A tier has a row that somebody else changed.
struct RowDamaged : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct NoOptimizer : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct StaleHandle : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// Types of a row's numbers. All arithmetic is in float32.
struct RowPrecision {
  NumberType value = NumberType::kFloat32;
  // Of optimizer states that are moving averages: float32 or bfloat16.
  NumberType state = NumberType::kFloat32;
  // Of those that are sums (Rule::KeepsSums): the same.
  NumberType accumulator = NumberType::kFloat32;
  // Whether a step writes back by chance (rows/rounding.h), so that the mean of what is written is
  // what was computed; else the nearest number is written.
  bool stochastic = true;
};

struct TableConfig {
  std::string name;
  // Names of different scopes do not meet: each network that is served has one of its own, beside
  // 0, that of the program. Nothing else depends on it, neither files nor first values.
  int64_t scope = 0;
  int64_t id = 0;  // its number in the registry
  int32_t dim = 0;
  Initializer initializer;  // its seed is filled from `seed` and the name
  uint64_t seed = 0;
  int64_t vocabulary = 0;      // > 0: a static table of keys 0 .. vocabulary - 1
  bool outside_zeros = false;  // static: ids outside read zeros; else they are an error
  // Values that unknown and not admitted keys read, in training and in evaluation: dim floats, or
  // one for all; none for zeros, or for what training reads.
  std::vector<float> unknown_value;
  std::vector<float> serving_unknown_value;
  Admission admission;
  Eviction eviction;
  Placement placement;
  RowPrecision precision;
};

}  // namespace msrec
