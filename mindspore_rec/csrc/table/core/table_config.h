// SPDX-License-Identifier: Apache-2.0
//
// TableConfig: the settings of a new table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "init/initializer.h"
#include "policy/admission.h"
#include "policy/eviction.h"
#include "table/core/placement.h"
#include "table/core/table_errors.h"
#include "util/number_type.h"

namespace msrec {

// Types of a row's numbers. All arithmetic is in float32.
struct RowPrecision {
  NumberType value = NumberType::kFloat32;
  // Type of optimizer states that are moving averages or decaying sums: float32 or bfloat16.
  NumberType state = NumberType::kFloat32;
  // Type of optimizer states that are sums of all gradients so far (Rule::KeepsSums): float32 or
  // bfloat16.
  NumberType accumulator = NumberType::kFloat32;
  // If `stochastic` is true, a step rounds numbers up or down at random (rows/rounding.h), so that
  // the expected value of a rounded number equals the computed number. If `stochastic` is false, a
  // step rounds to the nearest number.
  bool stochastic = true;
};

struct TableConfig {
  std::string name;
  // Tables in different scopes may have the same name. Tables of the running program have scope 0,
  // and each network that is served has its own scope. Neither files nor the first values of rows
  // depend on the scope.
  int64_t scope = 0;
  int64_t id = 0;  // the table's number in the registry
  int32_t dim = 0;
  Initializer initializer;  // the initializer's seed is computed from `seed` and the table's name
  uint64_t seed = 0;
  int64_t vocabulary = 0;  // > 0: a static table of keys 0 .. vocabulary - 1
  // For a static table: if true, lookups return zeros for ids outside the vocabulary; if false,
  // lookups throw.
  bool outside_zeros = false;
  // Training lookups return `unknown_value` for unknown keys and for keys that are not admitted;
  // evaluation lookups return `serving_unknown_value`. Each vector has dim floats, or one float for
  // all elements. An empty `unknown_value` means zeros. An empty `serving_unknown_value` means the
  // same as `unknown_value`.
  std::vector<float> unknown_value;
  std::vector<float> serving_unknown_value;
  Admission admission;
  Eviction eviction;
  Placement placement;
  RowPrecision precision;
};

}  // namespace msrec
