// SPDX-License-Identifier: Apache-2.0
//
// Victims: the rows that leave where there are too many, chosen among candidates that the shards
// sample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "table/core/victim_candidate.h"

namespace msrec {

class Shard;
struct TableCore;

// Sample candidates for `wanted` rows to leave. Calls sample(shard, n, out) for every shard, in
// parallel, with n in proportion to its rows: where there are few rows, all of them are candidates.
VictimCandidates SampleCandidates(
    const TableCore& core, uint64_t wanted,
    const std::function<void(Shard*, size_t, VictimCandidates*)>& sample);

// Keep the `most` candidates of the lowest priority, in no order.
void SelectVictims(uint64_t most, VictimCandidates* candidates);

}  // namespace msrec
