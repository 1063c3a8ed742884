// SPDX-License-Identifier: Apache-2.0
#include "workers/reduce.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "util/aligned.h"
#include "util/bfloat16.h"
#include "util/crc32c.h"
#include "util/for_blocks.h"

namespace msrec {
namespace {

constexpr size_t kTask = 1 << 15;   // floats of one task of the pool
constexpr size_t kLineFloats = 16;  // floats of a cache line

float Load(const float* from) { return *from; }
float Load(const uint16_t* from) { return FromBfloat16(*from); }

// Returns the index of the first float in part `part` if n floats are divided among `parts`
// workers. Each part consists of whole cache lines, and the sizes of the parts are as equal as
// possible.
size_t PartStart(size_t n, int part, int parts) {
  const size_t lines = (n + kLineFloats - 1) / kLineFloats;
  return std::min(n, lines * static_cast<size_t>(part) / parts * kLineFloats);
}

// Writes sum over r of weights[r] * received[r * n + i] to sum[i].
template <typename T>
void AddUp(const T* received, size_t n, int size, const float* weights, float* sum) {
  ForBlocks(n, kTask, [&](size_t begin, size_t end) {
    std::fill(sum + begin, sum + end, 0.0f);
    for (int r = 0; r < size; ++r) {
      const float weight = weights[r];
      if (weight == 0) continue;
      const T* from = received + static_cast<size_t>(r) * n;
      for (size_t i = begin; i < end; ++i) sum[i] += weight * Load(from + i);
    }
  });
}

// Memory of the calling thread, kept between calls.
struct ReduceMemory {
  AlignedMemory joined, sent, received, sum;
  std::vector<size_t> part_bytes, mine_bytes;  // by worker
};

ReduceMemory& ThreadMemory() {
  thread_local ReduceMemory memory;
  return memory;
}

// Sums `n` values, which are sent as type T. Before the call, `values` contains this worker's
// values; after the call, `values` contains the sums.
template <typename T>
void SumParts(Communicator& channel, T* values, size_t n, const float* weights) {
  const int size = channel.size();
  const int rank = channel.rank();
  const auto count = [&](int r) { return PartStart(n, r + 1, size) - PartStart(n, r, size); };
  const size_t mine = count(rank);
  ReduceMemory& scratch = ThreadMemory();
  scratch.mine_bytes.assign(size, mine * sizeof(T));
  scratch.part_bytes.resize(size);
  for (int r = 0; r < size; ++r) scratch.part_bytes[r] = count(r) * sizeof(T);
  auto* received = static_cast<T*>(scratch.received.AtLeast(mine * size * sizeof(T) + 1));
  channel.AllToAllV(values, scratch.part_bytes.data(), received, scratch.mine_bytes.data());
  T* const part = values + PartStart(n, rank, size);
  if constexpr (sizeof(T) == sizeof(float)) {
    AddUp(received, mine, size, weights, part);
  } else {
    auto* sum = static_cast<float*>(scratch.sum.AtLeast(mine * sizeof(float) + 1));
    AddUp(received, mine, size, weights, sum);
    ForBlocks(mine, kTask, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) part[i] = ToBfloat16(sum[i]);
    });
  }
  channel.AllGatherV(part, values, scratch.part_bytes.data());
}

size_t TotalSize(const std::vector<SummedSpan>& spans) {
  size_t n = 0;
  for (const SummedSpan& span : spans) n += span.size;
  return n;
}

}  // namespace

void WeightedSum(Communicator& channel, float* data, size_t n, const float* weights,
                 WireType wire) {
  if (wire == WireType::kFloat32) return SumParts(channel, data, n, weights);
  auto* rounded = static_cast<uint16_t*>(ThreadMemory().sent.AtLeast(n * sizeof(uint16_t) + 1));
  ForBlocks(n, kTask, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) rounded[i] = ToBfloat16(data[i]);
  });
  SumParts(channel, rounded, n, weights);
  ForBlocks(n, kTask, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) data[i] = FromBfloat16(rounded[i]);
  });
}

void WeightedSum(Communicator& channel, const std::vector<SummedSpan>& spans, const float* weights,
                 WireType wire) {
  if (spans.size() == 1) return WeightedSum(channel, spans[0].data, spans[0].size, weights, wire);
  std::vector<const float*> from;
  for (const SummedSpan& span : spans) from.push_back(span.data);
  WeightedSum(channel, from, spans, weights, wire);
}

void WeightedSum(Communicator& channel, const std::vector<const float*>& from,
                 const std::vector<SummedSpan>& spans, const float* weights, WireType wire) {
  const size_t n = TotalSize(spans);
  auto* joined = static_cast<float*>(ThreadMemory().joined.AtLeast(n * sizeof(float) + 1));
  float* at = joined;
  for (size_t i = 0; i < spans.size(); ++i) at = std::copy_n(from[i], spans[i].size, at);
  WeightedSum(channel, joined, n, weights, wire);
  at = joined;
  for (const SummedSpan& span : spans) {
    std::copy_n(at, span.size, span.data);
    at += span.size;
  }
}

void ReserveSum(const Communicator& channel, const std::vector<SummedSpan>& spans) {
  const int size = channel.size();
  const size_t n = TotalSize(spans);
  const size_t mine = PartStart(n, channel.rank() + 1, size) - PartStart(n, channel.rank(), size);
  ReduceMemory& scratch = ThreadMemory();
  scratch.joined.AtLeast(n * sizeof(float) + 1);
  scratch.received.AtLeast(mine * size * sizeof(float) + 1);
  scratch.mine_bytes.reserve(size);
  scratch.part_bytes.reserve(size);
}

std::optional<WorkerDifference> FindDifference(Communicator& channel,
                                               const std::vector<ByteSpan>& spans) {
  std::string mine(spans.size() * sizeof(uint32_t), '\0');
  for (size_t i = 0; i < spans.size(); ++i) {
    const uint32_t crc = Crc32c(0, spans[i].data, spans[i].size);
    std::memcpy(&mine[i * sizeof(crc)], &crc, sizeof(crc));
  }
  const std::vector<std::string> all = GatherBytes(channel, mine);
  WorkerDifference found;
  found.place = spans.size();
  for (int r = 1; r < channel.size(); ++r) {
    if (all[r] == all[0]) continue;
    found.workers.push_back(r);
    size_t place = 0;
    if (all[r].size() == all[0].size()) {
      const auto differs = std::mismatch(all[r].begin(), all[r].end(), all[0].begin()).first;
      place = static_cast<size_t>(differs - all[r].begin()) / sizeof(uint32_t);
    }
    found.place = std::min(found.place, place);
  }
  if (found.workers.empty()) return std::nullopt;
  return found;
}

}  // namespace msrec
