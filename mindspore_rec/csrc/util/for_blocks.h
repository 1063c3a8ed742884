// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "util/thread_pool.h"

namespace msrec {

// Divides n elements into blocks, and calls fn(begin, end) for the blocks in parallel. Each block
// except the last block has `block` elements; the last block has the remaining elements. ForBlocks
// allocates no memory.
template <typename Fn>
void ForBlocks(size_t n, size_t block, const Fn& fn) {
  const auto run = [&](int64_t b) {
    const size_t begin = static_cast<size_t>(b) * block;
    fn(begin, std::min(n, begin + block));
  };
  ThreadPool::Global().ParallelFor(static_cast<int64_t>((n + block - 1) / block), std::cref(run));
}

}  // namespace msrec
