// SPDX-License-Identifier: Apache-2.0
#include "table/core/victims.h"

#include <algorithm>

#include "rows/for_shards.h"
#include "table/core/table_core.h"

namespace msrec {

VictimCandidates SampleCandidates(
    const TableCore& core, uint64_t wanted,
    const std::function<void(Shard*, size_t, VictimCandidates*)>& sample) {
  const auto rows = static_cast<double>(core.Rows());
  VictimCandidates of_shard[kNumShards];
  ForAllShards([&](int s) {
    Shard* const shard = core.shards[s].get();
    const auto share = static_cast<double>(wanted) * static_cast<double>(shard->size());
    sample(shard, static_cast<size_t>(share / std::max(rows, 1.0)) + 1, &of_shard[s]);
  });
  VictimCandidates all;
  for (const auto& each : of_shard) all.insert(all.end(), each.begin(), each.end());
  return all;
}

void SelectVictims(uint64_t most, VictimCandidates* candidates) {
  const size_t kept = std::min<size_t>(most, candidates->size());
  if (kept > 0) {
    std::nth_element(candidates->begin(), candidates->begin() + (kept - 1), candidates->end());
  }
  candidates->resize(kept);
}

}  // namespace msrec
