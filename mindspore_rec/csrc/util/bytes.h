// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace msrec {

// Number of bytes in a cache line, and in a huge page of memory.
inline constexpr size_t kCacheLine = 64;
inline constexpr size_t kHugePage = size_t{2} << 20;

// CopyBytes and ZeroBytes do the same as std::memcpy and std::memset, but a pointer may be null if
// the number of bytes is 0, as in an empty buffer.
inline void CopyBytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

inline void ZeroBytes(void* to, size_t bytes) {
  if (bytes > 0) std::memset(to, 0, bytes);
}

// Return the least multiple of `unit` that is at least n.
template <typename Integer>
constexpr Integer RoundUp(Integer n, std::common_type_t<Integer> unit) {
  return (n + unit - 1) / unit * unit;
}

// Return the size of a message part in bytes, padded to a multiple of 8 so that the next part is
// aligned.
inline size_t Padded(size_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace msrec
