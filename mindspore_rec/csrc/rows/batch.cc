// SPDX-License-Identifier: Apache-2.0
#include "rows/batch.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <stdexcept>
#include <vector>

#include "util/bytes.h"
#include "util/thread_pool.h"

namespace msrec {
namespace {

// Number of positions in one task of the partition. Tasks are small enough to keep all threads
// busy, and large enough that the histograms of the tasks cost little. This size is constant, so
// the result does not depend on the number of threads.
constexpr size_t kTaskPositions = 16384;

constexpr int kDropped = kNumShards;  // pseudo shard for dropped ids, whose output is zeros

struct Histogram {
  uint32_t count[kNumShards + 1] = {};
};

template <typename Id, typename Visit>
void VisitShards(const Id* ids, size_t stride, size_t begin, size_t end, IdFilter filter,
                 Visit visit) {
  const bool identity = filter.identity;
  for (size_t i = begin; i < end; ++i) {
    const auto key = static_cast<int64_t>(ids[i * stride]);
    visit(i, key, filter.Drops(key) ? kDropped : ShardOf(key, HashKey(key), identity));
  }
}

template <typename Visit>
void VisitShards(const IdView& ids, size_t begin, size_t end, const IdFilter& filter, Visit visit) {
  if (ids.is_int64) {
    VisitShards(static_cast<const int64_t*>(ids.data), ids.stride, begin, end, filter, visit);
  } else {
    VisitShards(static_cast<const int32_t*>(ids.data), ids.stride, begin, end, filter, visit);
  }
}

}  // namespace

uint64_t HashIds(const IdView& ids) {
  uint64_t hash = 0x9e3779b97f4a7c15ULL ^ ids.size;
  for (size_t i = 0; i < ids.size; ++i) {
    hash = (hash ^ static_cast<uint64_t>(ids[i])) * 0xff51afd7ed558ccdULL;
    hash ^= hash >> 32;
  }
  return Mix64(hash);
}

void CheckBatchSize(const IdView& ids, const std::string& table) {
  const size_t places = ids.size * ids.stride;
  if (places < std::numeric_limits<uint32_t>::max()) return;
  throw std::invalid_argument("table '" + table +
                              "': a batch must have fewer than 2^32 - 1 ids, got " +
                              std::to_string(places));
}

void ZeroRows(const RowsOut& out, size_t n, size_t stride, size_t dim) {
  const bool halves = out.halves != nullptr;
  char* const first =
      halves ? reinterpret_cast<char*>(out.halves) : reinterpret_cast<char*>(out.floats);
  const size_t row_bytes = dim * (halves ? sizeof(uint16_t) : sizeof(float));
  if (stride == 1) return ZeroBytes(first, n * row_bytes);
  for (size_t i = 0; i < n; ++i) ZeroBytes(first + i * stride * row_bytes, row_bytes);
}

void Batch::Partition(const IdView& ids, const IdFilter& filter) {
  const size_t blocks = (ids.size + kTaskPositions - 1) / kTaskPositions;
  std::vector<Histogram> histograms(blocks);
  ThreadPool::Global().ParallelFor(static_cast<int64_t>(blocks), [&](int64_t b) {
    Histogram& histogram = histograms[b];
    const size_t first = b * kTaskPositions;
    const size_t last = std::min(ids.size, first + kTaskPositions);
    VisitShards(ids, first, last, filter,
                [&](size_t, int64_t, int shard) { ++histogram.count[shard]; });
  });
  n = ids.size;
  stride = ids.stride;
  coefficient = filter.coefficient;
  counts = filter.counts;
  made_unique = false;
  on_device = false;
  pos.Reset(n);
  inverse.Reset(n);
  key.Reset(n);
  occurrences.Reset(n);
  row.Reset(n);
  size_t total = 0;
  for (int s = 0; s < kNumShards; ++s) {
    begin[s] = total;
    for (Histogram& histogram : histograms) {
      const uint32_t count = histogram.count[s];
      histogram.count[s] = static_cast<uint32_t>(total);  // now the position at which this block
                                                          // writes
      total += count;
    }
  }
  begin[kNumShards] = total;
  ThreadPool::Global().ParallelFor(static_cast<int64_t>(blocks), [&](int64_t b) {
    Histogram& next = histograms[b];
    const size_t first = b * kTaskPositions;
    const size_t last = std::min(ids.size, first + kTaskPositions);
    VisitShards(ids, first, last, filter, [&](size_t i, int64_t k, int shard) {
      if (shard == kDropped) return;
      const uint32_t at = next.count[shard]++;
      pos[at] = static_cast<uint32_t>(i * ids.stride);
      key[at] = k;
    });
  });
}

void Batch::MakeUnique(int shard) {
  static thread_local KeySet kept;  // static, so that calls reuse the memory
  KeySet& distinct = kept;
  const size_t first = begin[shard];
  const size_t count = begin[shard + 1] - first;
  int64_t* keys = key.data() + first;
  uint32_t* seen = occurrences.data() + first;
  uint32_t* number = inverse.data() + first;
  // Ids are often repeated, so the hash set is sized for half of the ids, and stays in the cache.
  distinct.Reset(count / 2);
  for (size_t i = 0; i < count; ++i) {
    // Distinct keys overwrite the beginning of the array `keys`. The write position is never ahead
    // of the read position.
    const int64_t k = keys[i];
    const uint32_t before = distinct.size();
    const uint32_t u = distinct.FindOrAdd(k, keys);
    if (u == before) seen[u] = 0;
    ++seen[u];
    number[i] = u;
  }
  unique[shard] = distinct.size();
  if (counts != nullptr) CountOccurrences(shard);
}

void Batch::CountOccurrences(int shard) {
  const size_t first = begin[shard];
  uint32_t* seen = occurrences.data() + first;
  std::fill_n(seen, unique[shard], 0u);
  for (size_t i = first; i < begin[shard + 1]; ++i) {
    uint32_t& sum = seen[inverse[i]];
    const uint32_t more = counts[pos[i] / stride];
    sum += std::min(more, std::numeric_limits<uint32_t>::max() - sum);
  }
}

}  // namespace msrec
