// SPDX-License-Identifier: Apache-2.0
//
// Runs a function on every shard, in parallel where the work is worth waking another thread.
#pragma once

#include <functional>

#include "table/batch.h"
#include "util/thread_pool.h"

namespace msrec {

// Below this many ids a batch is done faster than a second thread can be woken.
constexpr size_t kSerialIds = 1024;

inline void ForShards(const Batch& batch, const std::function<void(int)>& fn) {
  if (batch.n <= kSerialIds) {
    for (int s = 0; s < kNumShards; ++s) {
      if (batch.begin[s + 1] != batch.begin[s]) fn(s);
    }
    return;
  }
  ThreadPool::Global().ParallelFor(kNumShards, [&](int64_t s) { fn(static_cast<int>(s)); });
}

inline void ForAllShards(const std::function<void(int)>& fn) {
  ThreadPool::Global().ParallelFor(kNumShards, [&](int64_t s) { fn(static_cast<int>(s)); });
}

}  // namespace msrec
