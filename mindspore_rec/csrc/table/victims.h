// SPDX-License-Identifier: Apache-2.0
//
// Victims: the rows that leave where there are too many, chosen among candidates that the shards
// sample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>
#include <vector>

namespace msrec {

class Shard;
struct TableCore;

// A row that may leave; the lower its priority, the earlier it goes.
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

// Sample candidates for `wanted` rows to leave. Calls sample(shard, n, out) for every shard, in
// parallel, with n in proportion to its rows: where there are few rows, all of them are candidates.
VictimCandidates SampleCandidates(
    const TableCore& core, uint64_t wanted,
    const std::function<void(Shard*, size_t, VictimCandidates*)>& sample);

// Keep the `most` candidates of the lowest priority, in no order.
void SelectVictims(uint64_t most, VictimCandidates* candidates);

}  // namespace msrec
