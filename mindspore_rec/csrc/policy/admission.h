// SPDX-License-Identifier: Apache-2.0
//
// Admission by count: a key gets a row in the batch in which its count of occurrences reaches the
// threshold; the whole batch sees the same verdict, since a batch is counted before any of it is
// decided.
#pragma once

#include <cstdint>

namespace msrec {

struct Admission {
  // > 0: admit when count >= threshold. 0: counts are frozen, nothing new is admitted. -1: off,
  // every key is admitted at once.
  int64_t threshold = -1;

  // With 1, the first occurrence admits: no counter is needed.
  bool immediate() const { return threshold == -1 || threshold == 1; }
  bool frozen() const { return threshold == 0; }
  bool Admits(uint32_t count) const { return threshold > 0 && count >= threshold; }
};

}  // namespace msrec
