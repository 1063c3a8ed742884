// SPDX-License-Identifier: Apache-2.0
//
// VictimCandidate: a row that may leave where there are too many, as a shard names it.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

namespace msrec {

// The lower its priority, the earlier it goes.
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
