// SPDX-License-Identifier: Apache-2.0
//
// RequireHeadroom: checks that memory is available before a change that cannot be undone half way.
#pragma once

#include <cstddef>
#include <memory>

namespace msrec {

// Throws std::bad_alloc unless `bytes` can be allocated now; frees them at once, untouched.
// Small allocations that follow, of any thread, then have room: malloc falls back on the memory of
// all threads.
inline void RequireHeadroom(size_t bytes) {
  const std::unique_ptr<char[]> room(new char[bytes]);
  asm volatile("" : : "r"(room.get()) : "memory");  // or the compiler drops the allocation
}

// An upper bound of the bytes that index, scratch arrays and change log need for this many keys: a
// larger segment of the index in each shard, and 100 bytes a key.
inline size_t HeadroomForKeys(size_t keys) { return (size_t{2} << 20) + 128 * keys; }

}  // namespace msrec
