// SPDX-License-Identifier: Apache-2.0
//
// Sums over workers. The sums are identical bit for bit on all workers and in repeated runs. This
// file also declares a check that the data of all workers are identical bit for bit.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "workers/communicator.h"

namespace msrec {

// The type of floats in messages between workers.
enum class WireType { kFloat32, kBFloat16 };

// Floats in memory.
struct SummedSpan {
  float* data = nullptr;
  size_t size = 0;
};

// Replaces the floats of each worker by a weighted sum: the sum of weights[r] * data_r over all
// workers r. The sum is computed in float32, in the order of ranks. A worker with weight 0 adds
// nothing, even if its data are NaN or infinite. `weights` contains size() numbers, which are the
// same on all workers. With the type kBFloat16, data and sums are rounded to bfloat16 before they
// are sent, so the messages have half as many bytes.
//
// Each worker sums one part of the data and sends the sum to all workers. In total, each worker
// sends 2 (size() - 1) / size() times the size of the data. All workers must call WeightedSum, with
// the same sizes.
void WeightedSum(Communicator& channel, float* data, size_t n, const float* weights,
                 WireType wire = WireType::kFloat32);
// Does the same as WeightedSum() for several arrays in one exchange.
void WeightedSum(Communicator& channel, const std::vector<SummedSpan>& spans, const float* weights,
                 WireType wire = WireType::kFloat32);
// Does the same as WeightedSum() for several arrays; array i consists of the spans[i].size floats
// at from[i]. The floats at from[i] do not change; the sums are written to the spans.
void WeightedSum(Communicator& channel, const std::vector<const float*>& from,
                 const std::vector<SummedSpan>& spans, const float* weights,
                 WireType wire = WireType::kFloat32);

// Allocates this thread's memory for a WeightedSum in float32. After the call, the WeightedSum
// cannot run out of memory. Throws std::bad_alloc.
void ReserveSum(const Communicator& channel, const std::vector<SummedSpan>& spans);

// Bytes in memory.
struct ByteSpan {
  const void* data = nullptr;
  size_t size = 0;
};

// The first span whose data differ between workers, and the workers whose data differ.
struct WorkerDifference {
  size_t place = 0;          // the first of the spans that differs
  std::vector<int> workers;  // those that differ from worker 0
};

// Compares the checksums of each span between the workers; returns no value if all checksums agree.
// Collective. If workers have different numbers of spans, the first span is returned as different.
std::optional<WorkerDifference> FindDifference(Communicator& channel,
                                               const std::vector<ByteSpan>& spans);

}  // namespace msrec
