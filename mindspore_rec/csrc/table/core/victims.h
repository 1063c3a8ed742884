// SPDX-License-Identifier: Apache-2.0
//
// Victims: chooses the rows to evict or demote if there are too many rows. Each shard samples
// candidates. The victims are chosen from the candidates of all shards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "table/core/victim_candidate.h"

namespace msrec {

class Shard;
struct TableCore;

// Sample the candidates from which `wanted` victims can be chosen. Calls sample(shard, n, out) for
// every shard, in parallel; n is proportional to the shard's number of rows. If there are few rows,
// all rows are candidates.
VictimCandidates SampleCandidates(
    const TableCore& core, uint64_t wanted,
    const std::function<void(Shard*, size_t, VictimCandidates*)>& sample);

// Drop the candidates with the highest priority until at most `most` candidates remain. The order
// of the kept candidates is not fixed.
void SelectVictims(uint64_t most, VictimCandidates* candidates);

}  // namespace msrec
