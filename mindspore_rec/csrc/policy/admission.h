// SPDX-License-Identifier: Apache-2.0
//
// Admission: the rule that decides which keys get rows. For a key that is not admitted, a lookup
// returns the table's unknown value, and the key is not trained. The decision is made after the
// whole batch is counted, so all occurrences of a key in a batch get the same decision.
#pragma once

#include <cmath>
#include <cstdint>

#include "util/hash.h"

namespace msrec {

enum class AdmissionKind : int32_t {
  kCount = 0,    // exact counts, with one counter per key that is not admitted
  kSketch,       // approximate counts, in memory that does not grow
  kProbability,  // each occurrence may admit the key at random
};

struct Admission {
  AdmissionKind kind = AdmissionKind::kCount;

  // If the threshold is positive, a key is admitted when its count reaches the threshold. If the
  // threshold is 0, counts are frozen, and no new key is admitted. If the threshold is -1,
  // admission is off, and every key is admitted at once.
  int64_t threshold = -1;
  int64_t max_candidates = -1;  // kCount: limit of counters in the whole table; -1: no limit
  int64_t sketch_bytes = 0;     // kSketch: bytes of the whole table's sketches
  int sketch_bits = 16;         // kSketch: bits of a counter: 4, 8 or 16
  double probability = 1.0;     // kProbability: probability that one occurrence admits a key

  bool counts() const { return kind != AdmissionKind::kProbability; }
  // True if every key is admitted at its first occurrence, so that no counters are needed.
  bool immediate() const {
    return counts() ? threshold == -1 || threshold == 1 : probability >= 1.0;
  }
  bool frozen() const { return counts() && threshold == 0; }
  bool Admits(uint32_t count) const { return threshold > 0 && count >= threshold; }

  // Return whether a key is admitted under the rule kProbability. The decision depends only on key,
  // step, seed and number of occurrences. The decision does not depend on threads or on the order
  // of the keys.
  bool Throw(int64_t key, int64_t step, uint64_t seed, uint32_t occurrences) const {
    const uint64_t die = Mix64(HashKey(key) + Mix64(seed ^ static_cast<uint64_t>(step)));
    const double thrown = static_cast<double>(die >> 11) * 0x1p-53;
    return thrown < 1.0 - std::pow(1.0 - probability, static_cast<double>(occurrences));
  }
};

}  // namespace msrec
