// SPDX-License-Identifier: Apache-2.0
//
// The first value of a row: a pure function of (seed, table name, key). The first value does not
// depend on threads, tiers, shards or the order in which keys arrive. The numbers come from
// Philox4x32-10 (Salmon et al. 2011). Philox's key is the table's seed, and Philox's counter is
// (row key, block). The code is in first_values.inl. This file is compiled once for each
// instruction set, together with the row kernels.
#pragma once

#include <cstdint>

namespace msrec {

enum class InitKind : int32_t { kConstant = 0, kUniform, kNormal, kTruncatedNormal };

struct Initializer {
  InitKind kind = InitKind::kConstant;
  uint64_t seed = 0;  // the table's seed, already mixed with the table's name
  // With kConstant, every number is `a`. With kUniform, the numbers are uniform in [`a`, `b`). With
  // kNormal, the numbers are normal with mean `a` and standard deviation `b`. With
  // kTruncatedNormal, the normal distribution is truncated to [`a` + `lower` * `b`, `a` + `upper` *
  // `b`].
  float a = 0.0f;
  float b = 0.0f;
  float lower = -2.0f;
  float upper = 2.0f;
};

}  // namespace msrec
