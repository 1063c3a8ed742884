// SPDX-License-Identifier: Apache-2.0
//
// Runs a function on every shard, in parallel if there is enough work to wake another thread. The
// functions below allocate no memory, so they never fail for lack of memory. If the batch is small,
// ForShards skips shards without ids of the batch.
#pragma once

#include "rows/batch.h"
#include "util/thread_pool.h"

namespace msrec {

// One thread alone processes a batch of at most this number of ids; waking a second thread would
// take longer.
constexpr size_t kSerialIds = 1024;

template <typename Fn>
void ForAllShards(const Fn& fn) {
  // std::function allocates no memory for a lambda that captures one reference.
  ThreadPool::Global().ParallelFor(kNumShards, [&fn](int64_t s) { fn(static_cast<int>(s)); });
}

template <typename Fn>
void ForShards(const Batch& batch, const Fn& fn) {
  if (batch.n <= kSerialIds) {
    for (int s = 0; s < kNumShards; ++s) {
      if (batch.begin[s + 1] != batch.begin[s]) fn(s);
    }
    return;
  }
  ForAllShards(fn);
}

}  // namespace msrec
