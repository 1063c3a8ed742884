// SPDX-License-Identifier: Apache-2.0
//
// Sums over workers, with the same bits on all of them and in repeated runs, and a check that
// workers hold the same bits.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "workers/communicator.h"

namespace msrec {

// The type of floats on their way between workers.
enum class WireType { kFloat32, kBFloat16 };

// Floats in memory.
struct SummedSpan {
  float* data = nullptr;
  size_t size = 0;
};

// Replaces the floats of each worker by the sum of weights[r] * data_r over workers r, in float32,
// added in the order of ranks. A worker of weight 0 adds nothing, whatever it has. `weights` has
// size() numbers, the same on all workers. kBFloat16 rounds data to bfloat16 before they are
// summed, and sums before they are handed back, which halves the bytes.
//
// Each worker sums one part and hands it to all, so 2 (size() - 1) / size() of the data are sent
// by each. Collective; sizes are the same on all workers.
void WeightedSum(Communicator& channel, float* data, size_t n, const float* weights,
                 WireType wire = WireType::kFloat32);
// The same of several arrays at once, for the price of one exchange.
void WeightedSum(Communicator& channel, const std::vector<SummedSpan>& spans, const float* weights,
                 WireType wire = WireType::kFloat32);
// The same of the floats that begin at from[i], spans[i].size each, which stay: the sums go to the
// spans.
void WeightedSum(Communicator& channel, const std::vector<const float*>& from,
                 const std::vector<SummedSpan>& spans, const float* weights,
                 WireType wire = WireType::kFloat32);

// Makes the memory that such a sum in float32 takes, in this thread: it cannot run out of memory
// then. Throws std::bad_alloc.
void ReserveSum(const Communicator& channel, const std::vector<SummedSpan>& spans);

// Bytes in memory.
struct ByteSpan {
  const void* data = nullptr;
  size_t size = 0;
};

// The place of a difference between workers.
struct WorkerDifference {
  size_t place = 0;          // the first of the spans that differs
  std::vector<int> workers;  // those that differ from worker 0
};

// Compares checksums of each span over workers; nothing where all agree. Collective; workers with
// another number of spans differ in the first.
std::optional<WorkerDifference> FindDifference(Communicator& channel,
                                               const std::vector<ByteSpan>& spans);

}  // namespace msrec
