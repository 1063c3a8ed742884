// SPDX-License-Identifier: Apache-2.0
#include "policy/check.h"

#include <cmath>
#include <limits>
#include <stdexcept>

#include "policy/sketch.h"
#include "rows/batch.h"
#include "rows/row_layout.h"

namespace msrec {
namespace {

constexpr int64_t kLeastCandidates = kNumShards;  // one a shard

}  // namespace

void CheckAdmission(const Admission& admission, const std::string& subject) {
  const bool sketch = admission.kind == AdmissionKind::kSketch;
  const int bits = admission.sketch_bits;
  if (sketch && bits != 4 && bits != 8 && bits != 16) {
    throw std::invalid_argument(subject +
                                ("sketch_bits must be 4, 8 or 16, got " + std::to_string(bits)));
  }
  const int64_t highest = sketch ? CountingSketch::MaxCount(bits) : int64_t{kMaxCount};
  if (admission.threshold < -1 || admission.threshold > highest) {
    throw std::invalid_argument(subject +
                                ("admission threshold must be in [-1, " + std::to_string(highest) +
                                 "], got " + std::to_string(admission.threshold)));
  }
  if (admission.max_candidates != -1 && admission.max_candidates < kLeastCandidates) {
    throw std::invalid_argument(subject + ("max_candidates must be -1 or >= 16, got " +
                                           std::to_string(admission.max_candidates)));
  }
  if (sketch && admission.sketch_bytes < 1024) {
    throw std::invalid_argument(
        subject + ("sketch_bytes must be >= 1024, got " + std::to_string(admission.sketch_bytes)));
  }
  if (!(admission.probability > 0.0 && admission.probability <= 1.0)) {
    throw std::invalid_argument(
        subject + ("probability must be in (0, 1], got " + std::to_string(admission.probability)));
  }
}

void CheckEviction(const Eviction& eviction, const std::string& subject) {
  const auto check = [&](const char* argument, int64_t value, int64_t least) {
    if (value == -1 || (value >= least && value <= std::numeric_limits<int64_t>::max() / 4)) return;
    throw std::invalid_argument(subject + (std::string(argument) +
                                           " must be -1 or >= " + std::to_string(least) + ", got " +
                                           std::to_string(value)));
  };
  check("max_idle_steps", eviction.max_idle_steps, 1);
  check("max_idle_seconds", eviction.max_idle_seconds, 1);
  check("max_rows", eviction.max_rows, 1);
  check("max_bytes", eviction.max_bytes, 1);
  const bool decays = eviction.order == EvictionOrder::kLfuDecay;
  if (decays && !(std::isfinite(eviction.half_life_steps) && eviction.half_life_steps > 0.0)) {
    throw std::invalid_argument(subject + ("half_life_steps must be a finite number > 0, got " +
                                           std::to_string(eviction.half_life_steps)));
  }
  if (!std::isfinite(eviction.min_norm)) {
    throw std::invalid_argument(subject + ("min_norm must be finite"));
  }
}

}  // namespace msrec
