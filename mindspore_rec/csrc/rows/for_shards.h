// SPDX-License-Identifier: Apache-2.0
//
// Runs a function on every shard, in parallel where the work is worth waking another thread. Needs
// no memory, so that it may follow what cannot be undone.
#pragma once

#include "rows/batch.h"
#include "util/thread_pool.h"

namespace msrec {

// Below this many ids a batch is done faster than a second thread can be woken.
constexpr size_t kSerialIds = 1024;

template <typename Fn>
void ForAllShards(const Fn& fn) {
  // A capture of one reference fits into std::function itself.
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
