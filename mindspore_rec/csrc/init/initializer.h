// SPDX-License-Identifier: Apache-2.0
//
// The first value of a row: a pure function of (seed, table name, key). The value does not depend
// on arrival order, threads, tiers or shards. The numbers come from Philox4x32-10 (Salmon et al.
// 2011), with the table's seed as its key and (row key, block) as its counter. The code is in
// first_values.inl, which is vectorised with the other row kernels.
#pragma once

#include <cstdint>

namespace msrec {

enum class InitKind : int32_t { kConstant = 0, kUniform, kNormal, kTruncatedNormal };

struct Initializer {
  InitKind kind = InitKind::kConstant;
  uint64_t seed = 0;  // of this table: already mixed with its name
  // kConstant: value = a. kUniform: [a, b). kNormal: mean a, standard deviation b.
  // kTruncatedNormal: like kNormal, cut to [lower, upper] standard deviations around the mean.
  float a = 0.0f;
  float b = 0.0f;
  float lower = -2.0f;
  float upper = 2.0f;
};

}  // namespace msrec
