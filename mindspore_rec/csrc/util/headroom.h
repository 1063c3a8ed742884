// SPDX-License-Identifier: Apache-2.0
//
// RequireHeadroom: checks that memory is available before the caller begins a change that cannot be
// undone.
#pragma once

#include <cstddef>
#include <memory>

namespace msrec {

// Throws std::bad_alloc unless `bytes` bytes can be allocated now; frees the bytes at once without
// touching them. If RequireHeadroom succeeds, later small allocations on any thread can use the
// freed memory.
inline void RequireHeadroom(size_t bytes) {
  const std::unique_ptr<char[]> room(new char[bytes]);
  asm volatile("" : : "r"(room.get()) : "memory");  // or the compiler drops the allocation
}

// Upper bound of the bytes that index, scratch arrays and change log need for `keys` keys. The
// bound consists of 128 bytes per key and, for each shard, the memory of a new index segment that
// replaces the present segment when the index grows.
inline size_t HeadroomForKeys(size_t keys) { return (size_t{2} << 20) + 128 * keys; }

}  // namespace msrec
