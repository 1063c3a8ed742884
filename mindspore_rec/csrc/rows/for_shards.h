// SPDX-License-Identifier: Apache-2.0
//
// Runs a function on every shard, in parallel if there is enough work to wake another thread. These
// functions allocate no memory, so they cannot fail after a change that cannot be undone.
#pragma once

#include "rows/batch.h"
#include "util/thread_pool.h"

namespace msrec {

// Maximum number of ids in a batch that one thread finishes before a second thread could wake up.
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
