// SPDX-License-Identifier: Apache-2.0
//
// VictimCandidate: a row of a shard that may be evicted or demoted if there are too many rows.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

namespace msrec {

// A row with a lower priority is evicted or demoted earlier.
struct VictimCandidate {
  double priority;
  uint32_t last_step, place;
  int shard;

  bool operator<(const VictimCandidate& other) const {
    return std::tie(priority, last_step, shard, place) <
           std::tie(other.priority, other.last_step, other.shard, other.place);
  }
};
using VictimCandidates = std::vector<VictimCandidate>;

}  // namespace msrec
